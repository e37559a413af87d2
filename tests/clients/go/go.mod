module hoglab.test/clients

go 1.18

require github.com/posthog/posthog-go v1.5.2
