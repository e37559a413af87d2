// The variants of a flag with their shares, and the payload that comes with each.

import { useId } from "preact/hooks"
import { Button } from "../kit/basics"
import { clipped } from "../lib/format"
import { equalised, sumOf, type VariantDraft } from "../lib/split"
import type { Draft } from "./draft"

interface Props {
  draft: Draft
  change: (changes: Partial<Draft>) => void
  fault: (place: string) => string | null
  /** Whether payloads are secrets, which are never shown. */
  encrypted: boolean
}

export function Variants({ draft, change, fault, encrypted }: Props) {
  const { variants, payloads } = draft
  const set = (at: number, changed: Partial<VariantDraft>) => {
    const before = variants[at]?.key
    const { [before ?? ""]: payload, ...others } = payloads
    const renamed = changed.key !== undefined && before !== undefined && payload !== undefined ? { payloads: { ...others, [changed.key]: payload } } : {}
    change({ variants: variants.map((variant, index) => (index === at ? { ...variant, ...changed } : variant)), ...renamed })
  }
  const add = () => {
    const added = variants.length === 0 ? [{ key: "control", share: "50", rest: {} }, { key: "test", share: "50", rest: {} }] : [...variants, { key: `variant-${variants.length + 1}`, share: "0", rest: {} }]
    change({ variants: added })
  }
  const payloadOf = (key: string) => (text: string) => change({ payloads: { ...payloads, [key]: text } })
  const sum = sumOf(variants)
  return (
    <section class="card" aria-label="Variants and payloads">
      <h2>{variants.length ? "Variants" : "On or off"}</h2>
      <p class="quiet">{variants.length ? "Whoever gets the flag gets one of these, always the same one." : "Whoever gets the flag gets true. Add variants to show several versions of something."}</p>
      {variants.map((variant, at) => (
        <fieldset key={at} class="condition">
          <legend>Variant {at + 1}</legend>
          <div class="filters">
            <label class="filter">
              <span>Key</span>
              <input class="of" value={variant.key} autocomplete="off" spellcheck={false} onInput={(event) => set(at, { key: event.currentTarget.value })} />
            </label>
            <label class="filter">
              <span>Share</span>
              <input class="share" inputmode="decimal" aria-label={`Share of variant ${at + 1} in percent`} value={variant.share} onInput={(event) => set(at, { share: event.currentTarget.value })} />
              <span>%</span>
            </label>
            <Button kind="quiet" label={`Remove variant ${at + 1}`} onClick={() => change({ variants: variants.filter((_, index) => index !== at) })}>
              Remove
            </Button>
          </div>
          <Payload label={`Payload of ${clipped(variant.key, 40)}`} value={payloads[variant.key] ?? ""} encrypted={encrypted} error={fault(`payloads.${variant.key}`)} onInput={payloadOf(variant.key)} />
        </fieldset>
      ))}
      {variants.length > 0 && (
        <p class={sum === 100 ? "quiet" : "fault"} role="status">
          The shares sum to {sum}%.
        </p>
      )}
      {fault("multivariate") && <p class="fault">{fault("multivariate")}</p>}
      {variants.length === 0 && <Payload label="Payload" value={payloads.true ?? ""} encrypted={encrypted} error={fault("payloads.true")} onInput={payloadOf("true")} />}
      <div class="row-buttons">
        <Button onClick={add}>{variants.length ? "Add a variant" : "Add variants"}</Button>
        {variants.length > 1 && <Button onClick={() => change({ variants: equalised(variants) })}>Equalise</Button>}
      </div>
    </section>
  )
}

interface PayloadProps {
  label: string
  value: string
  encrypted: boolean
  error: string | null
  onInput: (text: string) => void
}

function Payload({ label, value, encrypted, error, onInput }: PayloadProps) {
  const id = useId()
  if (encrypted) return <p class="quiet">{label}: {value ? "set, and secret. It is never shown; change it over the API." : "none."}</p>
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <textarea id={id} rows={value.length > 60 ? 4 : 1} spellcheck={false} placeholder='JSON that your code gets with it, such as {"colour": "green"}' aria-invalid={error ? true : undefined} aria-describedby={error ? `${id}-error` : undefined} value={value} onInput={(event) => onInput(event.currentTarget.value)} />
      {error && (
        <p class="fault" id={`${id}-error`}>
          {error}
        </p>
      )}
    </div>
  )
}
