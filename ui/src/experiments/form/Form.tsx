// The form of an experiment on one page: a new one, a draft, or what may still change of one that runs.

import { useEffect, useRef, useState } from "preact/hooks"
import { ApiError } from "../../api/client"
import { useGet } from "../../api/queryCache"
import { lacks } from "../../api/session"
import { Badge, Button, Name } from "../../kit/basics"
import { useTitle } from "../../kit/hooks"
import { Loaded, told } from "../../kit/states"
import { toast } from "../../kit/toasts"
import { dropDraft, keepDraft, keptDraft } from "../../lib/drafts"
import { clipped } from "../../lib/format"
import { object } from "../../lib/loose"
import { go, pathOf } from "../../lib/router"
import { ruleTexts } from "../../lib/rules"
import { STATUS_WORDS, WORDS } from "../../lib/words"
import { ActionDialog } from "../Actions"
import { EXPERIMENT } from "../addresses"
import { Aside, goTo, partOf } from "./Aside"
import { type Draft, draftOf, type Experiment, faultOf, hasPlainConditions, NEW, type Planned, problemsOf } from "./draft"
import { Metrics } from "./Metrics"
import { FlagPart, Idea, Who } from "./Parts"
import { recommended, usePlan } from "./plan"
import { Deciding, Planning } from "./Planning"
import { Conflict, Review } from "./Review"
import { change as sendChange, ChangedMeanwhile, create, HalfSaved, stampOf } from "./saving"
import { useLists } from "./sources"

const SHAPE = 1
/** Places whose faults stand at a field. */
const AT_FIELDS = /^(name|hypothesis|key|variants|rollout|conditions|exposure|metrics|metric .*|level|effect|days|people)$/

export default function ExperimentForm({ project, id }: { project: string; id: string }) {
  const isNew = id === ""
  const experiment = useGet(EXPERIMENT, isNew ? null : { project_id: project, experiment_id: id })
  useTitle(isNew ? "New experiment" : experiment.value ? `Change ${clipped(experiment.value.name, 80)}` : "Experiment")
  if (isNew) return <Page stored={null} project={project} />
  return (
    <Loaded answer={experiment} rows={8}>
      {(found) => <Page key={found.id} stored={found} project={project} />}
    </Loaded>
  )
}

interface Kept {
  shape: number
  stamp: string
  draft: Draft
}

function keptAs(name: string): Kept | null {
  const found = object(keptDraft(name))
  return found.shape === SHAPE ? (found as unknown as Kept) : null
}

function Page({ stored, project }: { stored: Experiment | null; project: string }) {
  const name = `experiment.${project}.${stored?.id ?? "new"}`
  const [kept] = useState(() => keptAs(name))
  const [base, setBase] = useState(stored)
  const [draft, setDraft] = useState<Draft>(() => kept?.draft ?? (stored ? draftOf(stored) : NEW))
  const [isRestored, setRestored] = useState(kept !== null)
  const [shown, setShown] = useState(false)
  const [refused, setRefused] = useState<[string, string] | null>(null)
  const [theirs, setTheirs] = useState<Experiment | null>(null)
  const [reviews, setReviews] = useState(false)
  const [busy, setBusy] = useState(false)
  // Two clicks come before the button is drawn as disabled.
  const sending = useRef(false)
  const [launching, setLaunching] = useState<Experiment | null>(null)
  const [byHand, setByHand] = useState<Planned | null>(null)
  const lists = useLists(project)
  const planning = usePlan(project, draft)
  const plan = recommended(planning.plan) ?? byHand
  const errors = useRef<HTMLDivElement>(null)
  const isLaunched = base !== null && base.start_date !== null
  const pristine = base ? draftOf(base) : NEW
  const isChanged = JSON.stringify(draft) !== JSON.stringify(pristine)
  useEffect(() => {
    if (isChanged) keepDraft(name, { shape: SHAPE, stamp: base ? stampOf(base) : "", draft } satisfies Kept)
    else dropDraft(name)
  }, [name, draft, isChanged, base])
  const problems = problemsOf(draft)
  const change = (changed: Partial<Draft>) => {
    setDraft((now) => ({ ...now, ...changed }))
    setRefused(null)
  }
  const fault = (place: string) => (refused?.[0] === place ? refused[1] : shown ? (problems[place] ?? null) : null)
  const pageOf = (experiment: Experiment) => pathOf("p", project, "experiments", experiment.id)
  const refuse = (error: unknown) => {
    if (error instanceof ChangedMeanwhile) return setTheirs(error.theirs)
    if (error instanceof HalfSaved) {
      // The experiment is there; what is missing is tried again from its own form.
      dropDraft(name)
      const next = `experiment.${project}.${error.experiment.id}`
      keepDraft(next, { shape: SHAPE, stamp: stampOf(error.experiment), draft: { ...draftOf(error.experiment), conditions: draft.conditions } } satisfies Kept)
      toast(`The experiment is saved, but not who may take part: ${told(error.cause).detail}`)
      return go(`${pageOf(error.experiment)}/edit`, undefined, { replace: true })
    }
    const [place, words] = error instanceof ApiError && error.status === 400 ? faultOf(draft, error.attr, told(error).detail) : ["", told(error).detail]
    setRefused([place, words])
    setTimeout(() => (AT_FIELDS.test(place) ? goTo(partOf(place)) : errors.current?.focus()))
  }
  const saved = (experiment: Experiment, launches: boolean) => {
    dropDraft(name)
    if (launches) return setLaunching(experiment)
    toast(`Saved ${clipped(draft.name, 60)}.`)
    go(pageOf(experiment))
  }
  const save = async (launches: boolean) => {
    if (sending.current) return
    sending.current = true
    setBusy(true)
    try {
      if (base === null) saved(await create(project, draft, plan), launches)
      else {
        await sendChange(project, base, draft, plan)
        saved(base, launches)
      }
    } catch (error) {
      setReviews(false)
      refuse(error)
    } finally {
      sending.current = false
      setBusy(false)
    }
  }
  const submit = (launches: boolean) => {
    setShown(true)
    if (Object.keys(problems).length > 0) errors.current?.focus()
    else if (isLaunched) setReviews(true)
    else void save(launches)
  }
  const startOver = () => {
    setDraft(pristine)
    setRestored(false)
    setShown(false)
    setRefused(null)
  }
  const elsewhere = refused && !AT_FIELDS.test(refused[0]) ? refused[1] : null
  const given = { draft, change, fault, lists, project, isLaunched }
  const rules = base && !hasPlainConditions(base) ? ruleTexts({ groups: object(base.feature_flag?.filters).groups }) : []
  return (
    <>
      <header class="page-head">
        <h1 class="grow">
          {base ? (
            <>
              Change <Name text={base.name} /> <Badge>{STATUS_WORDS[base.status] ?? base.status}</Badge>
            </>
          ) : (
            "New experiment"
          )}
        </h1>
      </header>
      <form
        class="flag-page experiment-form"
        novalidate
        onSubmit={(event) => {
          event.preventDefault()
          submit(false)
        }}
      >
        <div class="flag-main">
          {isRestored && (
            <p class="restored row" role="status">
              <span>
                This is what you had not saved yet.
                {base && kept && kept.stamp !== stampOf(base) && " The experiment was changed since: look at each field before you save."}
              </span>
              <Button kind="quiet" onClick={startOver}>
                Start over
              </Button>
            </p>
          )}
          {theirs && base && (
            <Conflict
              base={base}
              theirs={theirs}
              actions={lists.actions}
              keep={() => {
                setBase(theirs)
                setTheirs(null)
              }}
              drop={() => {
                setBase(theirs)
                setDraft(draftOf(theirs))
                setTheirs(null)
              }}
            />
          )}
          <div ref={errors} tabindex={-1} class="summary">
            {(elsewhere || (shown && Object.keys(problems).length > 0)) && (
              <p class="failure" role="alert">
                {elsewhere ?? `This cannot be saved yet. ${[...new Set(Object.values(problems))].join(" ")}`}
              </p>
            )}
          </div>
          <Idea {...given} />
          <FlagPart {...given} isNew={base === null && launching === null} />
          <Who {...given} rules={rules} flagId={base?.feature_flag?.id ?? null} />
          <Metrics {...given} />
          <Deciding {...given} />
          <Planning {...given} planning={planning} setByHand={setByHand} />
          <div class="buttons save-bar">
            <Button onClick={() => (base ? go(pageOf(base)) : go(pathOf("p", project, "experiments")))}>{WORDS.cancel}</Button>
            <Button kind={isLaunched ? "primary" : "plain"} type="submit" disabled={busy || (base !== null && !isChanged)} lacks={lacks("experiment:write")}>
              {isLaunched ? "Review and save …" : "Save draft"}
            </Button>
            {!isLaunched && (
              <Button kind="primary" disabled={busy} lacks={lacks("experiment:write")} onClick={() => submit(true)}>
                Save and launch …
              </Button>
            )}
          </div>
        </div>
        <Aside draft={draft} plan={plan} lists={lists} isLaunched={isLaunched} />
      </form>
      {reviews && base && <Review base={base} draft={draft} actions={lists.actions} save={() => save(false)} onClose={() => setReviews(false)} />}
      {launching && <ActionDialog action="launch" experiment={launching} results={null} project={project} onClose={() => go(pageOf(launching))} />}
    </>
  )
}
