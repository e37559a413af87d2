// Where the page of one experiment gets what it shows, so that it can be asked for before the page's code is there.

import { address } from "../api/client"

export interface ExperimentParts {
  project_id: string
  experiment_id: string
}

export const EXPERIMENT = "/api/projects/{project_id}/experiments/{experiment_id}/"
export const RESULTS = "/api/projects/{project_id}/experiments/{experiment_id}/results/"

export function asksOfExperiment(parts: Record<string, string>): string[] {
  const named = { project_id: parts.project ?? "", experiment_id: parts.id ?? "" }
  return [address(EXPERIMENT, named), address(RESULTS, named)]
}
