// What lists of objects share: columns that sort, pages, and the people who made what is listed.

import { useRef } from "preact/hooks"
import { counted, visible } from "../lib/format"
import { ask } from "../lib/router"
import { Button } from "./basics"
import { Select } from "./forms"
import { usePlace } from "./hooks"

/** The order after a click on a column: texts begin upwards, numbers with the largest; the next click turns it round. */
export function nextOrder(order: string, column: string, largestFirst: boolean): string {
  const first = largestFirst ? `-${column}` : column
  return order === first ? (largestFirst ? column : `-${column}`) : first
}

interface ColumnProps {
  name: string
  column: string
  order: string
  largestFirst: boolean
  isNumber?: boolean
}

export function Column({ name, column, order, largestFirst, isNumber }: ColumnProps) {
  const direction = order === column ? "ascending" : order === `-${column}` ? "descending" : "none"
  return (
    <th scope="col" class={isNumber ? "number" : undefined} aria-sort={direction}>
      <button type="button" class="sort" onClick={() => ask({ order: nextOrder(order, column, largestFirst), offset: null })}>
        {name}
        {{ ascending: " ↑", descending: " ↓", none: "" }[direction]}
      </button>
    </th>
  )
}

interface PagesProps {
  count: number
  noun: string
  offset: number
  size: number
  /** How many can be reached with Next. */
  reachable?: number
  note?: string | false
}

export function Pages({ count, noun, offset, size, reachable = count, note }: PagesProps) {
  return (
    <div class="pages">
      <span class="quiet">
        {counted(count, noun)}
        {note}
      </span>
      {offset > 0 && <Button onClick={() => ask({ offset: String(Math.max(0, offset - size)) })}>Previous</Button>}
      {offset + size < reachable && <Button onClick={() => ask({ offset: String(offset + size) })}>Next</Button>}
    </div>
  )
}

interface Made {
  created_by: { id?: number; first_name?: string; email?: string } | null
}

/** Who made the objects that were seen, by their ids. */
export function makersOf(objects: readonly Made[]): [string, string][] {
  const makers = new Map<string, string>()
  for (const { created_by: maker } of objects) if (maker) makers.set(String(maker.id), makerText(maker))
  return [...makers]
}

export function makerText(maker: NonNullable<Made["created_by"]>): string {
  return String(maker.first_name || maker.email || `user ${maker.id}`)
}

/** The choice of a creator; whoever was seen can be chosen, also once a filter hides what they made. */
export function MakerSelect({ known }: { known: [string, string][] }) {
  const by = usePlace().query.get("by") ?? ""
  const makers = useRef(new Map<string, string>())
  for (const [id, name] of known) makers.current.set(id, name)
  if (by && by !== "me" && !makers.current.has(by)) makers.current.set(by, `user ${by}`)
  const people = [...makers.current].sort(([, a], [, b]) => a.localeCompare(b)).map(([id, name]) => [id, visible(name.slice(0, 60))] as const)
  return <Select label="Created by" value={by} options={[["", "Everybody"], ["me", "Me"], ...people]} onChange={(wanted) => ask({ by: wanted, offset: null })} />
}
