import { __isNull } from './__isNull.js'
import { __newHogError } from './__newHogError.js'
import { values } from './values.js'

export function __inCohort(name, cohort, cohorts) {
    if (__isNull(cohorts)) {
        throw __newHogError('Error', name + '() requires cohort membership to be loaded for this evaluation')
    }
    return values(cohorts).some((member) => member == cohort)
}
