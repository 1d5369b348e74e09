package action

import (
	"time"

	"github.com/curfew-dev/curfew/internal/intent"
)

const (
	// callTimeout limits one request to a provider or one message to people, and rereadTimeout the
	// reading of all facts of due items.
	callTimeout   = intent.Patience
	rereadTimeout = 2 * time.Minute
	// freezeTimeout limits a freeze before a person is told to stop actions by hand.
	freezeTimeout = 10 * time.Second
	// maxRereadAge is the age up to which facts are not read again right before a call, so that the
	// first call after a verification does not read everything twice.
	maxRereadAge = 5 * time.Second
)
