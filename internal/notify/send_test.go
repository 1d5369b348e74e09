package notify

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/curfew-dev/curfew/internal/action"
)

// TestSendsOnlyToConfiguredAddresses lists the addresses that the configuration names, and refuses
// every other one, such as that of a person who is known by a tag.
func TestSendsOnlyToConfiguredAddresses(t *testing.T) {
	var got []string
	sent := sendFunc(func(to string, m action.Message) error { got = append(got, to+" "+m.To); return nil })
	r := &Router{
		config: Config{
			Slack: Slack{DefaultChannel: "#gpus", Users: map[string]string{"ana": "U012AB3CD"}},
			Names: map[string][]string{
				"oncall": {"slack:#oncall", "mail:oncall@example.com"}, "again": {"slack:#oncall"},
			},
			Unowned: []string{"slack:#cost"},
		},
		channels: map[string]Channel{SlackChannel: sent},
	}
	var names []string
	for _, a := range r.Addresses() {
		names = append(names, a.String())
	}
	if want := []string{"slack:#cost", "slack:#gpus", "slack:#oncall"}; !slices.Equal(names, want) {
		t.Errorf("the addresses are %q, want %q", names, want)
	}
	if err := r.Send(t.Context(), Address{SlackChannel, "#oncall"}, action.Message{}); err != nil {
		t.Error(err)
	}
	for _, no := range []Address{{SlackChannel, "U012AB3CD"}, {MailChannel, "oncall@example.com"}, {}} {
		if err := r.Send(t.Context(), no, action.Message{}); !errors.Is(err, ErrNoRecipient) {
			t.Errorf("%s: %v", no, err)
		}
	}
	if want := []string{"#oncall slack:#oncall"}; !slices.Equal(got, want) {
		t.Errorf("it sent to %q", got)
	}
}

type sendFunc func(to string, m action.Message) error

func (f sendFunc) Send(_ context.Context, to string, m action.Message) error { return f(to, m) }
