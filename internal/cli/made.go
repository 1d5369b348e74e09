package cli

import (
	"context"
	"log/slog"
	"sync"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/notify"
)

// attributed says in a message who made a resource that no tag gives an owner, where the
// provider's log can be read. That it cannot changes nothing.
type attributed struct {
	action.Notifier
	creator func(ctx context.Context, r *inventory.Resource) (string, error)
	log     *slog.Logger

	mu   sync.Mutex
	made map[inventory.Ref]string
}

// Notify implements action.Notifier.
func (n *attributed) Notify(ctx context.Context, recipient string, m action.Message) (string, error) {
	if r := m.Resource; recipient == notify.Owner && r != nil && r.Tags != nil && r.Owner.User == "" && r.Owner.Team == "" {
		m.Creator = n.maker(ctx, r)
	}
	return n.Notifier.Notify(ctx, recipient, m)
}

// maker asks once for each resource.
func (n *attributed) maker(ctx context.Context, r *inventory.Resource) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	who, asked := n.made[r.Ref()]
	if asked {
		return who
	}
	who, err := n.creator(ctx, r)
	if err != nil {
		n.log.LogAttrs(ctx, slog.LevelWarn, "who made it is not known", slog.String("resource", r.ID), slog.String("why", action.Redact(err.Error())))
	}
	if n.made == nil {
		n.made = map[inventory.Ref]string{}
	}
	n.made[r.Ref()] = who
	return who
}
