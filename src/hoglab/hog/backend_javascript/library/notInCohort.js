import { __inCohort } from './__inCohort.js'

export function notInCohort(cohort, cohorts) {
    return !__inCohort('notInCohort', cohort, cohorts)
}
