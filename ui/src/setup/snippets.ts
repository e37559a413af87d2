// How each SDK sends the first event to this server.

export interface Snippet {
  key: string
  name: string
  code: string
}

const EVENT = "first event"

/** The snippets with a server's address and a project's token. */
export function snippets(host: string, token: string): Snippet[] {
  return [
    { key: "curl", name: "curl", code: `curl ${host}/capture/ \\\n  -H 'Content-Type: application/json' \\\n  -d '{"api_key": "${token}",\n       "event": "${EVENT}", "distinct_id": "me",\n       "properties": {"from": "curl"}}'` },
    { key: "python", name: "Python", code: `# pip install posthog\nfrom posthog import Posthog\n\nposthog = Posthog("${token}", host="${host}")\nposthog.capture("${EVENT}", distinct_id="me", properties={"from": "python"})\nposthog.shutdown()` },
    { key: "browser", name: "JavaScript (browser)", code: `// npm install posthog-js\nimport posthog from "posthog-js"\n\nposthog.init("${token}", { api_host: "${host}", person_profiles: "always" })\nposthog.capture("${EVENT}", { from: "browser" })` },
    { key: "node", name: "JavaScript (node)", code: `// npm install posthog-node\nimport { PostHog } from "posthog-node"\n\nconst posthog = new PostHog("${token}", { host: "${host}" })\nposthog.capture({ distinctId: "me", event: "${EVENT}", properties: { from: "node" } })\nawait posthog.shutdown()` },
    { key: "go", name: "Go", code: `// go get github.com/posthog/posthog-go\nclient, _ := posthog.NewWithConfig("${token}", posthog.Config{Endpoint: "${host}"})\ndefer client.Close()\nclient.Enqueue(posthog.Capture{\n  DistinctId: "me",\n  Event:      "${EVENT}",\n  Properties: posthog.NewProperties().Set("from", "go"),\n})` },
    { key: "ruby", name: "Ruby", code: `# gem install posthog-ruby\nrequire "posthog"\n\nposthog = PostHog::Client.new(api_key: "${token}", host: "${host}")\nposthog.capture(distinct_id: "me", event: "${EVENT}", properties: { from: "ruby" })\nposthog.flush` },
    { key: "php", name: "PHP", code: `// composer require posthog/posthog-php\nPostHog\\PostHog::init("${token}", ["host" => "${host}"]);\nPostHog\\PostHog::capture([\n  "distinctId" => "me",\n  "event" => "${EVENT}",\n  "properties" => ["from" => "php"],\n]);\nPostHog\\PostHog::flush();` },
    { key: "react-native", name: "React Native", code: `// npm install posthog-react-native\nimport PostHog from "posthog-react-native"\n\nconst posthog = new PostHog("${token}", { host: "${host}" })\nposthog.capture("${EVENT}", { from: "react-native" })` },
    { key: "ios", name: "iOS", code: `// https://github.com/PostHog/posthog-ios\nimport PostHog\n\nlet config = PostHogConfig(apiKey: "${token}", host: "${host}")\nPostHogSDK.shared.setup(config)\nPostHogSDK.shared.capture("${EVENT}", properties: ["from": "ios"])` },
    { key: "android", name: "Android", code: `// implementation("com.posthog:posthog-android:3.+")\nval config = PostHogAndroidConfig(apiKey = "${token}", host = "${host}")\nPostHogAndroid.setup(this, config)\nPostHog.capture("${EVENT}", properties = mapOf("from" to "android"))` },
  ]
}
