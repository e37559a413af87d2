// Fields with their label, hint and error, and tabs.

import type { ComponentChildren } from "preact"
import { useId } from "preact/hooks"
import { Link } from "./basics"

interface FieldProps {
  label: string
  hint?: string | undefined
  error?: string | null | undefined
  children: (given: { id: string; "aria-describedby": string | undefined; "aria-invalid": boolean | undefined }) => ComponentChildren
}

export function Field({ label, hint, error, children }: FieldProps) {
  const id = useId()
  const described = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ") || undefined
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children({ id, "aria-describedby": described, "aria-invalid": error ? true : undefined })}
      {hint && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
      {error && (
        <p class="fault" id={`${id}-error`}>
          {error}
        </p>
      )}
    </div>
  )
}

interface SelectProps {
  label: string
  /** What it is called where the label is left out. */
  name?: string
  value: string
  options: readonly (readonly [string, string])[]
  onChange: (value: string) => void
}

/** A choice with its label beside it, for bars above lists. */
export function Select({ label, name, value, options, onChange }: SelectProps) {
  return (
    <label class="filter">
      {label && <span>{label}</span>}
      <select aria-label={name} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map(([key, text]) => (
          <option key={key} value={key}>
            {text}
          </option>
        ))}
      </select>
    </label>
  )
}

interface SearchProps {
  label: string
  name?: string | undefined
  value: string
  onInput: (value: string) => void
}

export function Search({ label, name, value, onInput }: SearchProps) {
  return (
    <label class="filter">
      {label && <span>{label}</span>}
      <input type="search" aria-label={name} value={value} data-search onInput={(event) => onInput(event.currentTarget.value)} />
    </label>
  )
}

interface TabsProps {
  tabs: readonly (readonly [string, string])[]
  current: string
  to: (tab: string) => { path: string; query: URLSearchParams }
}

/** Parts of one object, each at an address of its own. */
export function Tabs({ tabs, current, to }: TabsProps) {
  return (
    <nav class="tabs" aria-label="Parts of this page">
      {tabs.map(([key, text]) => (
        <Link key={key} to={to(key).path} query={to(key).query} current={key === current}>
          {text}
        </Link>
      ))}
    </nav>
  )
}
