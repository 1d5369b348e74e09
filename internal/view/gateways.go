package view

import "github.com/curfew-dev/curfew/internal/gateway/stats"

// GatewaysSchema names the document of the gateways that a configuration registers.
const GatewaysSchema = "curfew.gateways/v1"

// Gateways are the registered gateways with their answers.
type Gateways struct {
	Schema   string    `json:"schema"`
	Gateways []Gateway `json:"gateways"`
}

// Gateway is one registered gateway.
type Gateway struct {
	Name string `json:"name"`
	URL  string `json:"url"`
	// Stats is its answer; null if it did not answer, with the reason.
	Stats  *stats.Stats `json:"stats"`
	Reason string       `json:"reason"`
}
