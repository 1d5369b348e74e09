package clouds

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
)

// heard records the creator of each message.
type heard []string

func (h *heard) Notify(_ context.Context, _ string, m action.Message) (string, error) {
	*h = append(*h, m.Creator)
	return "test", nil
}

// TestQueriesCreatorsOfUnownedResources checks that the provider's log is queried once for each
// resource without an owner, and that failures change nothing.
func TestQueriesCreatorsOfUnownedResources(t *testing.T) {
	var got heard
	asked := 0
	n := &creatorNotifier{
		Notifier: &got, log: slog.New(slog.DiscardHandler),
		creator: func(_ context.Context, r *inventory.Resource) (string,
			error) {
			if asked++; r.ID == "i-2" {
				return "", errors.New("denied")
			}
			return "ana", nil
		}}
	machine := func(id string, o inventory.Owner) *inventory.Resource {
		return &inventory.Resource{ID: id, Kind: inventory.KindInstance, Tags: map[string]string{}, Owner: o}
	}
	unread := machine("i-4", inventory.Owner{})
	unread.Tags = nil
	for _, tc := range []struct {
		to   string
		r    *inventory.Resource
		want string
	}{
		{"owner", machine("i-1", inventory.Owner{}), "ana"},
		{"owner", machine("i-1", inventory.Owner{Environment: "dev"}), "ana"},
		{"owner", machine("i-2", inventory.Owner{}), ""},
		{"owner", machine("i-2", inventory.Owner{}), ""},
		{"team", machine("i-1", inventory.Owner{}), ""},
		{"owner", machine("i-3", inventory.Owner{Team: "vision"}), ""},
		{"owner", machine("i-3", inventory.Owner{User: "bo"}), ""},
		{"owner", unread, ""},
		{"owner", nil, ""},
	} {
		if to, err := n.Notify(t.Context(), tc.to, action.Message{Resource: tc.r}); err != nil || to != "test" ||
			got[len(got)-1] != tc.want {
			t.Errorf("%s of %+v: %q, %v, made by %q; want %q", tc.to, tc.r, to, err, got[len(got)-1], tc.want)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times, want twice", asked)
	}
}
