// Program that asks posthog-go for payloads of remote configuration flags.
//
// Arguments: the address of the server, a project token, a secret key, then keys of flags. It prints the payloads as
// one JSON list of strings.
package main

import (
	"encoding/json"
	"log"
	"os"

	"github.com/posthog/posthog-go"
)

func main() {
	address, token, secretKey, flags := os.Args[1], os.Args[2], os.Args[3], os.Args[4:]
	client, err := posthog.NewWithConfig(token, posthog.Config{Endpoint: address, PersonalApiKey: secretKey})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	payloads := []string{}
	for _, flag := range flags {
		payload, err := client.GetRemoteConfigPayload(flag)
		if err != nil {
			log.Fatalf("%s: %v", flag, err)
		}
		payloads = append(payloads, payload)
	}
	if err := json.NewEncoder(os.Stdout).Encode(payloads); err != nil {
		log.Fatal(err)
	}
}
