// Package notify reaches people: it puts messages into words, finds out where a
// recipient is reached, and delivers by the channels in its subpackages. A recipient
// is reached only when its channel says that it took the message; everything
// else is an error.
package notify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/wait"
)

// Recipients with a meaning of their own.
const (
	Owner = "owner" // the resource's user, else its team
	Team  = "team"  // the resource's team
)

// ErrNoRecipient is wrapped by the error that no rule leads from a recipient to an address.
var ErrNoRecipient = errors.New("no recipient")

// Bounds of one delivery.
const (
	timeout  = 10 * time.Second // of one attempt
	attempts = 3
	backoff  = time.Second // before the second attempt, doubled for the third
	// longestWait is how long a Retry-After is honored; beyond it the next round
	// tries again.
	longestWait = 30 * time.Second
)

// Channel delivers messages by one medium.
type Channel interface {
	// Send makes one attempt. It returns nil only once the other side said that it
	// took the message; a refusal is a *[Failure]. It keeps to the context.
	Send(ctx context.Context, to string, m action.Message) error
}

// Opener opens the channel of one section of the configuration, under the name that
// addresses begin with; a nil Channel where the section is not there.
type Opener func(c Config, lookup Lookup) (name string, ch Channel, err error)

// Router is the action.Notifier that the configuration describes. The zero Router
// reaches no recipient. It is safe for concurrent use.
type Router struct {
	config   Config
	channels map[string]Channel
}

var _ action.Notifier = (*Router)(nil)

// New validates the configuration and opens its channels: slack.Open, mail.Open,
// webhook.Open. Mistakes are a *[FieldError].
func New(c Config, lookup Lookup, openers ...Opener) (*Router, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	r := &Router{config: c, channels: map[string]Channel{}}
	for _, open := range openers {
		name, ch, err := open(c, lookup)
		if err != nil {
			return nil, err
		}
		if ch != nil {
			r.channels[name] = ch
		}
	}
	return r, nil
}

// Check reports whether a policy may name the recipient: owner, team, or one of the
// configured names.
func (r *Router) Check(recipient string) error {
	if _, ok := r.config.Names[recipient]; ok || recipient == Owner || recipient == Team {
		return nil
	}
	return fmt.Errorf("%w: %q is neither owner nor team nor in notify.names", ErrNoRecipient,
		plain.Cut(plain.Line(recipient), maxName))
}

// Notify delivers to the first of the recipient's addresses that accepts, and
// returns that address: "slack:#vision". Temporary failures are tried again, three
// attempts in all, final ones are not. The error holds what each address answered.
func (r *Router) Notify(ctx context.Context, recipient string, m action.Message) (string, error) {
	stops, err := r.route(recipient, m)
	if err != nil {
		return "", err
	}
	var refused error
	for _, s := range stops {
		m.To = s.to
		err := r.deliver(ctx, s, m)
		if err == nil {
			return s.String(), nil
		}
		err = fmt.Errorf("%s: %w", s, err)
		if refused != nil {
			err = fmt.Errorf("%w; %w", refused, err)
		}
		if refused = err; ctx.Err() != nil {
			break
		}
	}
	if m.Resource == nil {
		return "", fmt.Errorf("notify %s: %w", recipient, refused)
	}
	return "", fmt.Errorf("notify %s of %s: %w", recipient, Named(m.Resource), refused)
}

// Addresses returns the addresses that the configuration names, of the channels that are open, in
// order. Those that tags lead to are not among them.
func (r *Router) Addresses() []Address {
	lists := [][]string{r.config.Unowned}
	for _, byName := range []map[string][]string{r.config.Names, r.config.Accounts} {
		for _, list := range byName {
			lists = append(lists, list)
		}
	}
	var out []Address
	for _, s := range slices.Concat(lists...) {
		if a, err := ParseAddress(s); err == nil {
			out = append(out, a)
		}
	}
	if to := r.config.Slack.DefaultChannel; to != "" {
		out = append(out, Address{SlackChannel, to})
	}
	if r.config.Webhook.Used() {
		out = append(out, Address{Channel: WebhookChannel})
	}
	out = slices.DeleteFunc(out, func(a Address) bool { return r.channels[a.Channel] == nil })
	slices.SortFunc(out, func(a, b Address) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(out)
}

// Send delivers a message to one of [Router.Addresses].
func (r *Router) Send(ctx context.Context, to Address, m action.Message) error {
	if !slices.Contains(r.Addresses(), to) {
		return fmt.Errorf("%w: the configuration does not name %s", ErrNoRecipient,
			plain.Cut(plain.Line(to.String()), maxName))
	}
	m.To = to.String()
	return r.deliver(ctx, stop{to, m.To}, m)
}

// stop is one address on a recipient's route, and who is meant by it.
type stop struct {
	Address
	to string
}

// route returns where a recipient is reached, in the order to try, at least one.
func (r *Router) route(recipient string, m action.Message) ([]stop, error) {
	if err := r.Check(recipient); err != nil {
		return nil, err
	}
	var stops []stop
	add := func(to string, addresses ...Address) {
		for _, a := range addresses {
			known := slices.ContainsFunc(stops, func(s stop) bool { return s.Address == a })
			if _, open := r.channels[a.Channel]; open && !known {
				stops = append(stops, stop{a, to})
			}
		}
	}
	listed := func(to string, list []string) error {
		for _, s := range list {
			a, err := ParseAddress(s)
			if err != nil {
				return err
			}
			add(to, a)
		}
		return nil
	}
	if recipient != Owner && recipient != Team {
		if err := listed(recipient, r.config.Names[recipient]); err != nil {
			return nil, err
		}
	} else {
		var owner inventory.Owner
		if m.Resource != nil {
			owner = m.Resource.Owner
		}
		if recipient == Owner && owner.User != "" {
			add(owner.User, r.config.user(owner.User)...)
		}
		if owner.Team != "" {
			add("team "+owner.Team, r.config.team(owner.Team)...)
		}
		if recipient == Owner && owner.User == "" && owner.Team == "" && m.Creator != "" {
			add(m.Creator, r.config.user(m.Creator)...)
		}
		if m.Resource != nil {
			if err := listed("account "+m.Resource.Account, r.config.Accounts[m.Resource.Account]); err != nil {
				return nil, err
			}
		}
		if err := listed("the contacts for unowned resources", r.config.Unowned); err != nil {
			return nil, err
		}
		// A warning starts the grace of whoever receives it: the default channel receives none
		// unless it is configured to answer.
		if s := r.config.Slack; s.DefaultChannel != "" && (s.DefaultOwns || m.Kind != "warning") {
			add(s.DefaultChannel, Address{SlackChannel, s.DefaultChannel})
		}
	}
	if len(stops) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNoRecipient, r.unreached(recipient, m.Resource))
	}
	return stops, nil
}

// unreached explains why no rule leads to an address, and names one that would.
func (r *Router) unreached(recipient string, res *inventory.Resource) string {
	switch {
	case len(r.channels) == 0:
		return "no channel is configured; see notify in curfew.yaml"
	case recipient != Owner && recipient != Team:
		return fmt.Sprintf("none of the channels of %s is open", recipient)
	case res == nil:
		return "the message is about no resource, so it has no " + recipient
	case res.Tags == nil && res.Owner == (inventory.Owner{}):
		return "the tags of " + Named(res) + " could not be read"
	case res.Owner.Team == "" && (res.Owner.User == "" || recipient == Team):
		return "no tag of " + Named(res) + " names its " + recipient +
			"; tag it, or let notify.unowned or notify.accounts answer for it"
	}
	return "no rule of notify leads to the " + recipient + " of " + Named(res) +
		"; add them to its users or teams, or let notify.unowned answer"
}

// deliver tries until the channel accepts, refuses for good, or the attempts are
// used up.
func (r *Router) deliver(ctx context.Context, s stop, m action.Message) error {
	for attempt := 1; ; attempt++ {
		err := attemptOne(ctx, r.channels[s.Channel], s.To, m)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var f *Failure
		if !errors.As(err, &f) || !f.Temporary {
			return err
		}
		rest := max(f.RetryAfter, backoff<<(attempt-1))
		if rest > longestWait {
			return fmt.Errorf("%w, and asks to wait for %s", err, plain.Duration(f.RetryAfter))
		}
		if attempt == attempts {
			return fmt.Errorf("%w (tried %d times)", err, attempts)
		}
		if err := wait.For(ctx, rest); err != nil {
			return err
		}
	}
}

func attemptOne(ctx context.Context, ch Channel, to string, m action.Message) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return ch.Send(ctx, to, m)
}
