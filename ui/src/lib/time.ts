// Moments and days as people read them, in a project's time zone.

const UNITS: readonly [Intl.RelativeTimeFormatUnit, number][] = [
  ["year", 31_557_600],
  ["month", 2_629_800],
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
]
// Made when it is needed: each costs a slow machine milliseconds before anything is shown.
let made: Intl.RelativeTimeFormat | undefined

function relative(amount: number, unit: Intl.RelativeTimeFormatUnit): string {
  made ??= new Intl.RelativeTimeFormat("en", { numeric: "always", style: "short" })
  return made.format(amount, unit).replace(".", "")
}

/** "3 min ago", "in 2 days"; nearer than ten seconds: "just now". */
export function ago(moment: Date, now: Date): string {
  const seconds = (moment.getTime() - now.getTime()) / 1000
  if (Math.abs(seconds) < 10) return "just now"
  for (const [unit, size] of UNITS)
    if (Math.abs(seconds) >= size) return relative(Math.trunc(seconds / size), unit)
  return relative(Math.trunc(seconds), "second")
}

/** Date and time to the millisecond in a zone; with an unknown zone in UTC. */
export function absolute(moment: Date, zone: string, milliseconds = false): string {
  const options: Intl.DateTimeFormatOptions = {
    year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
  }
  if (milliseconds) options.fractionalSecondDigits = 3
  return zoned(options, zone).format(moment)
}

/** "14:05", in a zone; of another day with the day before it. */
export function hourText(moment: Date, zone: string): string {
  const hour: Intl.DateTimeFormatOptions = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" }
  const isToday = dateText(moment, zone) === dateText(new Date(), zone)
  return zoned(isToday ? hour : { ...hour, month: "short", day: "numeric" }, zone).format(moment)
}

/** "Nov 2" of a day like 2026-11-02. */
export function dayText(day: string): string {
  return zoned({ month: "short", day: "numeric" }, "UTC").format(new Date(`${day.slice(0, 10)}T00:00:00Z`))
}

export function dateText(moment: Date, zone: string): string {
  return zoned({ year: "numeric", month: "short", day: "numeric" }, zone).format(moment)
}

/** The moment a microsecond later than one that the API gives, which has at most six digits of a second. */
export function justAfter(timestamp: string): string {
  const [, fraction = ""] = /\.(\d{1,6})/.exec(timestamp) ?? []
  const micros = Number(fraction.padEnd(6, "0")) + 1
  const second = Math.floor(Date.parse(timestamp) / 1000) + Math.floor(micros / 1_000_000)
  return `${new Date(second * 1000).toISOString().slice(0, 19)}.${String(micros % 1_000_000).padStart(6, "0")}Z`
}

export function daysBetween(from: Date, to: Date): number {
  return Math.max(0, Math.floor((to.getTime() - from.getTime()) / 86_400_000))
}

function zoned(options: Intl.DateTimeFormatOptions, zone: string): Intl.DateTimeFormat {
  try {
    return new Intl.DateTimeFormat("en", { ...options, timeZone: zone })
  } catch {
    return new Intl.DateTimeFormat("en", { ...options, timeZone: "UTC" })
  }
}
