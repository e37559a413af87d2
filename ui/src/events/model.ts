// What the screens of events share.

import type { Schemas } from "../api/client"

export type Event = Schemas["EventOut"]
