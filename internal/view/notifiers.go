package view

// NotifiersSchema names the shape of [Notifiers], NotifierTestSchema that of [NotifierTest].
const (
	NotifiersSchema    = "curfew.notifiers/v1"
	NotifierTestSchema = "curfew.notifier.test/v1"
)

// Notifiers are the addresses that the configuration names for messages.
type Notifiers struct {
	Schema    string     `json:"schema"`
	Notifiers []Notifier `json:"notifiers"`
}

// Notifier is one address.
type Notifier struct {
	// ID is the address: slack:#oncall, mail:oncall@example.com or webhook.
	ID string `json:"id"`
	// Channel is slack, mail or webhook.
	Channel string `json:"channel"`
}

// NotifierTest is a test message that an address accepted.
type NotifierTest struct {
	Schema string `json:"schema"`
	Notifier
	// Outcome is the result in one sentence.
	Outcome string `json:"outcome"`
}
