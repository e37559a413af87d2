// Small pieces of state that components share.

import { useEffect, useLayoutEffect, useReducer, useRef, useState } from "preact/hooks"
import { onMove, place, type Place } from "../lib/router"

export function usePlace(): Place {
  const [, render] = useReducer((count: number) => count + 1, 0)
  useEffect(() => onMove(() => render(undefined)), [])
  return place()
}

/** The width of an element in pixels, as it changes; 0 before it is known. */
export function useWidth<E extends HTMLElement>(): [{ current: E | null }, number] {
  const element = useRef<E>(null)
  const [width, setWidth] = useState(0)
  // Before anything is painted, so that nothing jumps when it is known.
  useLayoutEffect(() => {
    const node = element.current
    if (!node) return undefined
    setWidth(Math.floor(node.clientWidth))
    const observer = new ResizeObserver(() => setWidth(Math.floor(node.clientWidth)))
    observer.observe(node)
    return () => observer.disconnect()
  }, [])
  return [element, width]
}

/** The present moment, as of at most so many milliseconds ago. */
export function useNow(everyMs = 10_000): Date {
  const [now, setNow] = useState(() => new Date())
  useEffect(() => {
    const timer = setInterval(() => setNow(new Date()), everyMs)
    return () => clearInterval(timer)
  }, [everyMs])
  return now
}

/** A value once it has not changed for a while. */
export function useSettled<T>(value: T, ms: number): T {
  const [settled, setSettled] = useState(value)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(() => value), ms)
    return () => clearTimeout(timer)
  }, [value, ms])
  return settled
}

/** Whether so much time has passed since the component appeared. */
export function useAfter(ms: number): boolean {
  const [over, setOver] = useState(false)
  useEffect(() => {
    const timer = setTimeout(() => setOver(true), ms)
    return () => clearTimeout(timer)
  }, [ms])
  return over
}

export function useTitle(title: string): void {
  useEffect(() => {
    document.title = title ? `${title} · hoglab` : "hoglab"
  }, [title])
}
