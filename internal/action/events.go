package action

// The values of [Entry.What].
const (
	EventObserved   = "observed"   // a condition became true, or an item was put back to the first step
	EventWarned     = "warned"     // a recipient's channel accepted the warning
	EventUnwarned   = "unwarned"   // no channel accepted the warning, so that grace does not run
	EventAsked      = "asked"      // an approval was requested, or consent to lose disks was asked of the owners
	EventGrace      = "grace"      // the grace period begins again
	EventIntent     = "intent"     // a call is about to be made, with its idempotency key
	EventOutcome    = "outcome"    // the provider's answer to a call
	EventConfirmed  = "confirmed"  // the provider shows that the change happened
	EventPutBack    = "put-back"   // the provider did not do what it accepted; the item goes back a step
	EventAlarm      = "alarm"      // a change that is not confirmed needs a person
	EventNotified   = "notified"   // a recipient's channel accepted that an action was confirmed, or its alarm
	EventUnnotified = "unnotified" // no channel accepted such a notice for a week, and it was given up
	EventFailed     = "failed"     // an action was given up
	EventWithdrawn  = "withdrawn"  // the condition is no longer true, or a keep came
	EventRefused    = "refused"    // a rule forbids the action
	EventUndo       = "undo"       // a call is about to be taken back
	EventUndone     = "undone"     // a call was taken back
	EventFuse       = "fuse"       // a policy wanted to act on more than usual, and waits for a person
	EventConfirm    = "confirm"    // a person confirmed a fuse
	EventFreeze     = "freeze"     // all actions were stopped
	EventUnfreeze   = "unfreeze"   // actions may go on
	EventKeep       = "keep"       // a resource was exempted
	EventConsent    = "consent"    // a person let policies end a machine whose disks lose data
	EventApproved   = "approved"   // a request was approved
	EventDenied     = "denied"     // a request was denied
	EventUsed       = "used"       // an approval was used
	// a request was ended, because what was asked for or its approval no longer holds
	EventVoid        = "void"
	EventHoldRelease = "hold-release" // a budget reservation was released
	EventHoldSettle  = "hold-settle"  // a budget reservation was settled with its charges
	EventHoldExtend  = "hold-extend"  // a budget reservation was extended
	EventSettings    = "settings"     // shared settings or prices were set
	EventClock       = "clock"        // the time of the state was set
	EventToken       = "token"        // a token of the service was created or revoked
	EventTestMessage = "test-message" // a person sent a test message to a notifier
	EventCall        = "call"         // a person or program called the service to change something
	// the state is older than its witness: nothing acts by it until an operator accepts it
	EventQuarantine = "quarantine"
	EventAccept     = "accept"  // an operator accepted a state in quarantine
	EventSession    = "session" // a session was asked for, or went a step on: its state is the action

	EventFindingNew     = "finding-new"     // an audit of the service found something that did not hold before
	EventFindingChanged = "finding-changed" // what a finding saves, or its fix, is another one
	EventFindingEnded   = "finding-ended"   // an audit of the service found that a finding no longer holds
	EventBill           = "bill"            // a bill was imported by the service
	EventBacktest       = "backtest"        // a backtest was asked for, ended or was canceled
)
