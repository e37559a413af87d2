// The start: preferences, then the session, then the shell or the page to log in.

import { render } from "preact"
import { start } from "./app/ahead"
import { Application } from "./app/Application"
import { apply } from "./lib/storage"
import "./styles/base.css"
import "./styles/shell.css"
import "./styles/kit.css"
import "./styles/plots.css"
import "./styles/screens.css"
import "./styles/form.css"

apply()
const session = start()
const root = document.getElementById("app")
if (root) render(<Application first={session} />, root)
