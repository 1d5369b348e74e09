package action

import (
	"time"

	"github.com/curfew-dev/curfew/internal/intent"
)

const (
	// patience is how long one question to a provider or one message to people may take,
	// and readFor how long everything about due items may take to be read again.
	patience = intent.Patience
	readFor  = 2 * time.Minute
	// freezeFor is how long a freeze may take before a person is told to do it by hand.
	freezeFor = 10 * time.Second
	// justNow is how old a reading may be for the call that follows it: so long, that the
	// first call after a verification does not read everything twice.
	justNow = 5 * time.Second
)
