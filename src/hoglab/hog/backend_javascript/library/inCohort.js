import { __inCohort } from './__inCohort.js'

export function inCohort(cohort, cohorts) {
    return __inCohort('inCohort', cohort, cohorts)
}
