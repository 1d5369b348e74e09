package cli

import (
	"context"
	"log/slog"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
)

// tagWarning is the tag that mirrors a warning. Nothing reads it: grace is in the
// state, and who was warned is in the audit log.
const tagWarning = "curfew:warning"

// mirrored writes a warning that somebody accepted as a tag of its resource too, for
// those who look at the resource. That it cannot changes nothing.
type mirrored struct {
	action.Notifier
	cloud action.Cloud
	on    bool
	log   *slog.Logger
}

// Notify implements action.Notifier.
func (n mirrored) Notify(ctx context.Context, recipient string, m action.Message) (string, error) {
	accepted, err := n.Notifier.Notify(ctx, recipient, m)
	if err != nil || !n.on || m.Kind != "warning" || m.Resource == nil || m.ActsAt.IsZero() {
		return accepted, err
	}
	if err := n.tag(ctx, m); err != nil {
		n.log.LogAttrs(ctx, slog.LevelWarn, "the warning is not on the resource as a tag", slog.String("resource", m.Resource.ID), slog.String("why", action.Redact(err.Error())))
	}
	return accepted, nil
}

func (n mirrored) tag(ctx context.Context, m action.Message) error {
	tags := map[string]string{tagWarning: string(m.Verb) + " not before " + m.ActsAt.UTC().Format(time.RFC3339)}
	return writeTags(ctx, n.cloud, m.Resource, tags, m.Item+"-warning")
}
