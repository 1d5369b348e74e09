package clouds

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/notify"
	"github.com/curfew-dev/curfew/internal/notify/mail"
	"github.com/curfew-dev/curfew/internal/notify/slack"
	"github.com/curfew-dev/curfew/internal/notify/webhook"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/store"
)

// maxBlindGap is the longest pause between passes that counts as continuous if only the wall clock
// can be read, since a jump of that clock is only visible as a pause.
const maxBlindGap = 15 * time.Minute

// Ladders returns a function that opens the ladder of an account.
func Ladders(req *runtime.Request, cfg config.Config, s *store.Store, cloud action.Cloud,
	enforce bool) (func(account string) *action.Ladder, error) {
	router, err := notify.New(cfg.Reached(), req.Lookup, slack.Open, mail.Open, webhook.Open)
	if err != nil {
		return nil, err
	}
	who, err := req.Person(cfg)
	if err != nil {
		return nil, err
	}
	gap := cfg.Enforce.MaxRoundGap
	if req.Clock().Boot == "" {
		gap = min(gap, maxBlindGap)
	}
	log := slog.New(slog.NewTextHandler(req.Log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var people action.Notifier = router
	if hands, ok := cloud.(interface {
		Creator(ctx context.Context, r *inventory.Resource) (string, error)
	}); ok {
		people = &creatorNotifier{Notifier: router, creator: hands.Creator, log: log}
	}
	return func(account string) *action.Ladder {
		return &action.Ladder{
			Store: s.Actions(), Cloud: cloud, Notifier: tagNotifier{people, cloud, cfg.Enforce.MirrorTag, log},
			Account: account, Actor: who, Enforce: enforce,
			Clock: req.Clock, Know: Know, KeepByHand: KeepByHand, MaxRoundGap: gap,
			KeepMax: cfg.Enforce.KeepMax, Log: log,
		}
	}, nil
}

// tagWarning is the tag that mirrors a warning. Nothing reads it: the state holds grace periods,
// and the audit log who was warned.
const tagWarning = "curfew:warning"

// tagNotifier also writes a delivered warning as a tag of its resource, for people who look at the
// resource. Failures are ignored.
type tagNotifier struct {
	action.Notifier
	cloud action.Cloud
	on    bool
	log   *slog.Logger
}

// Notify implements action.Notifier.
func (n tagNotifier) Notify(ctx context.Context, recipient string, m action.Message) (string, error) {
	accepted, err := n.Notifier.Notify(ctx, recipient, m)
	if err != nil || !n.on || m.Kind != "warning" || m.Resource == nil || m.ActsAt.IsZero() {
		return accepted, err
	}
	if err := n.tag(ctx, m); err != nil {
		n.log.LogAttrs(ctx, slog.LevelWarn, "the warning is not on the resource as a tag",
			slog.String("resource", m.Resource.ID), slog.String("why", action.Redact(err.Error())))
	}
	return accepted, nil
}

func (n tagNotifier) tag(ctx context.Context, m action.Message) error {
	tags := map[string]string{tagWarning: string(m.Verb) + " not before " + m.ActsAt.UTC().Format(time.RFC3339)}
	return WriteTags(ctx, n.cloud, m.Resource, tags, m.Item+"-warning")
}

// creatorNotifier adds to a message who created a resource without an owner tag, if the provider's
// log can be read. Failures are ignored.
type creatorNotifier struct {
	action.Notifier
	creator func(ctx context.Context, r *inventory.Resource) (string, error)
	log     *slog.Logger

	mu   sync.Mutex
	made map[inventory.Ref]string
}

// Notify implements action.Notifier.
func (n *creatorNotifier) Notify(ctx context.Context, recipient string, m action.Message) (string, error) {
	if r := m.Resource; recipient == notify.Owner && r != nil && r.Tags != nil && r.Owner.User == "" &&
		r.Owner.Team == "" {
		m.Creator = n.maker(ctx, r)
	}
	return n.Notifier.Notify(ctx, recipient, m)
}

// maker looks up the creator of each resource once.
func (n *creatorNotifier) maker(ctx context.Context, r *inventory.Resource) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	who, asked := n.made[r.Ref()]
	if asked {
		return who
	}
	who, err := n.creator(ctx, r)
	if err != nil {
		n.log.LogAttrs(ctx, slog.LevelWarn, "who made it is not known", slog.String("resource", r.ID),
			slog.String("why", action.Redact(err.Error())))
	}
	if n.made == nil {
		n.made = map[inventory.Ref]string{}
	}
	n.made[r.Ref()] = who
	return who
}

// WriteTags writes tags on a resource; existing ones are no error.
func WriteTags(ctx context.Context, cloud action.Cloud, r *inventory.Resource, tags map[string]string,
	key string) error {
	do := policy.Do{Verb: policy.Tag, Tags: tags}
	steps, err := cloud.Plan(ctx, r, do)
	var refusal *action.Refusal
	if errors.As(err, &refusal) && refusal.Rule == "nothing-to-do" {
		return nil
	}
	if err != nil {
		return err
	}
	return CarryOut(ctx, cloud, r, do, steps, key)
}

// CarryOut makes the calls of a plan in order, under one key.
func CarryOut(ctx context.Context, cloud action.Cloud, r *inventory.Resource, do policy.Do, steps []action.Step,
	key string) error {
	for i, s := range steps {
		s.Key = key
		if _, err := cloud.Do(ctx, action.Task{
			Ref: r.Ref(), Identity: action.Identity(r), Do: do, Step: s, Earlier: steps[:i],
		}); err != nil {
			return err
		}
	}
	return nil
}
