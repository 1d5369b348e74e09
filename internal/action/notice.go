package action

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

const (
	// claimDuration is how long a notice is reserved for a delivering process: longer than a
	// delivery takes, so that only a crashed process leaves one to others.
	claimDuration = 2 * callTimeout
	// retryFirst and retryMost bound the pause before a failed notice is tried again. It doubles
	// with each attempt.
	retryFirst = time.Minute
	retryMost  = time.Hour
	// abandonAfter is when a notice that no channel accepts is given up.
	abandonAfter = 7 * 24 * time.Hour
	// maxRefusals is the number of failed deliveries after which a round leaves the others to the
	// next one, because a channel that does not answer would delay its actions.
	maxRefusals = 3
)

// Recipients that depend on the resource: its owner, and the owner's team.
const (
	recipientOwner = "owner"
	recipientTeam  = "team"
)

// The kinds of notices.
const (
	noticeActed = "acted" // the provider confirmed the action
	noticeAlarm = "alarm" // a call failed, is not confirmed, or was given up
	// noticeResolved says that the condition of a policy that notifies no longer holds.
	noticeResolved = "resolved"
)

// Briefing is the content of a notice apart from the outcome. It is stored with the action's
// intent: the process that confirms the last call may start after the resource is gone, and know
// neither its owner nor its policy.
type Briefing struct {
	// Recipients are the policy's recipients: "owner", "team", or configured names.
	Recipients       []string
	Name, Type, Zone string
	// Tags are the resource's; nil if they could not be read.
	Tags    map[string]string
	Owner   inventory.Owner
	Because string
	// Hourly is the list price of an hour of the resource; nil if unknown.
	Hourly           *money.Amount
	Undo, Know, Lost string
	Keep, KeepTag    string
	Evidence         []usage.Evidence
	// Spent is the dollars that an alarm was about when people were notified of it; nil if unknown.
	Spent *money.Amount
}

// Notice is a pending message to people. It is stored in one transaction with the change it is
// about, and delivered once by any process: at most twice, if a process crashes between the
// channel's acceptance and its record.
type Notice struct {
	// ID consists of the ids of the item, of its version at the time, and of the recipient.
	ID      string
	Account string
	Item    string
	// Ref is the resource it is about, if any.
	Ref       inventory.Ref
	Verb      policy.Verb
	Kind      string
	Recipient string
	// Alarm is the failure; empty if the action was confirmed.
	Alarm     string
	Briefing  Briefing
	CreatedAt time.Time
	// Attempts counts the deliveries, and DueAt is the time of the next one.
	Attempts int
	DueAt    time.Time
	// ClosedAt is when a channel accepted it, or when it was given up; zero while it is pending.
	ClosedAt   time.Time
	AcceptedBy string
	// Error is why the newest delivery failed.
	Error string
}

// Message returns the notice as channels deliver it.
func (n Notice) Message() Message {
	b := n.Briefing
	m := Message{
		Kind: n.Kind, To: n.Recipient, Item: n.Item, Verb: n.Verb, Because: b.Because, Evidence: b.Evidence,
		Undo: b.Undo, Know: b.Know, Lost: b.Lost, Keep: b.Keep, KeepTag: b.KeepTag,
	}
	if n.Ref != (inventory.Ref{}) {
		m.Resource = &inventory.Resource{
			Cloud: n.Ref.Cloud, Account: n.Ref.Account, Region: n.Ref.Region, Kind: n.Ref.Kind, ID: n.Ref.ID,
			Name: b.Name, Type: b.Type, Zone: b.Zone, Tags: b.Tags, Owner: b.Owner,
		}
	}
	if b.Hourly != nil {
		m.Hourly = inventory.Known(*b.Hourly)
	}
	if n.Alarm != "" {
		m.Because = n.Alarm
	}
	if n.Kind == noticeResolved {
		m.Keep, m.KeepTag = "", ""
	}
	return m
}

// Storable returns a copy of the notice in the form of every store. It fails without an id or a due
// time.
func (n Notice) Storable() (Notice, error) {
	switch {
	case n.ID == "":
		return n, errors.New("a notice without an id")
	case n.DueAt.IsZero():
		return n, fmt.Errorf("notice %s is never due", n.ID)
	}
	n.Briefing = n.Briefing.clone()
	n.Alarm, n.Error = storable(n.Alarm), storable(n.Error)
	n.CreatedAt, n.DueAt, n.ClosedAt = truncateTime(n.CreatedAt), truncateTime(n.DueAt), truncateTime(n.ClosedAt)
	return n, nil
}

// clone returns a storable copy of the briefing.
func (b Briefing) clone() Briefing {
	b.Because = storable(b.Because)
	b.Recipients, b.Tags, b.Evidence = slices.Clone(b.Recipients), maps.Clone(b.Tags), slices.Clone(b.Evidence)
	for i := range b.Evidence {
		e := &b.Evidence[i]
		if e.Value = storable(e.Value); math.IsNaN(e.Coverage) || math.IsInf(e.Coverage, 0) {
			e.Coverage = usage.NoCoverage // JSON has no such numbers
		}
	}
	if b.Hourly != nil {
		hourly := *b.Hourly
		b.Hourly = &hourly
	}
	if b.Spent != nil {
		spent := *b.Spent
		b.Spent = &spent
	}
	return b
}

// briefing returns the content of later notices about an item's action.
func (s *pass) briefing(it Item, p Proposal) *Briefing {
	m, r := s.message("", it, p), p.Resource
	b := Briefing{
		Recipients: recipientsOrOwner(p.Notify), Name: r.Name, Type: r.Type, Zone: r.Zone, Tags: r.Tags,
		Owner: r.Owner, Because: m.Because,
		Undo: m.Undo, Know: m.Know, Lost: m.Lost, Keep: m.Keep, KeepTag: m.KeepTag, Evidence: m.Evidence,
	}
	if hourly, known := p.Hourly.Get(); known {
		b.Hourly = &hourly
	}
	if spent, known := p.Spent.Get(); known {
		b.Spent = &spent
	}
	return &b
}

// notices returns the notices about an item as it is being saved.
func (s *pass) notices(kind string, it Item, p *Proposal) []Notice {
	// A person who writes tags sees the results; others are notified only of failures.
	if it.Do.Verb == policy.Tag && (kind == noticeActed || isPersonSource(it.Source)) {
		return nil
	}
	b := it.Briefing
	switch {
	case b != nil:
	case p != nil:
		b = s.briefing(it, *p)
	default: // its intent is from a version without briefings
		b = &Briefing{Because: it.Because}
	}
	var out []Notice
	for _, to := range recipientsOrOwner(b.Recipients) {
		n := Notice{
			ID: fmt.Sprintf("%s-%d-%s", it.ID, it.Version+1, to), Account: it.Account, Item: it.ID, Ref: it.Ref,
			Verb: it.Do.Verb, Kind: kind, Recipient: to, Briefing: *b,
			CreatedAt: s.Clock().Wall, DueAt: s.Clock().Wall,
		}
		if kind == noticeAlarm {
			n.Alarm = it.Alarm
		}
		if !slices.ContainsFunc(out, func(o Notice) bool { return o.ID == n.ID }) {
			out = append(out, n)
		}
	}
	return out
}

// saveWithNotices saves an item with its entries and notices.
func (s *pass) saveWithNotices(ctx context.Context, kind string, it Item, p *Proposal,
	entries ...Entry) (Item, error) {
	it = s.stamp(it)
	saved, err := s.Store.SaveOwing(ctx, it, s.notices(kind, it, p), entries...)
	if err != nil {
		return it, fmt.Errorf("save the item of %s: %w", it.Ref.ID, err)
	}
	if s.hasNewNotices = true; s.Log != nil && kind == noticeAlarm {
		s.Log.LogAttrs(ctx, slog.LevelWarn, "alarm", slog.String("operation", "act"),
			slog.String("account", it.Account),
			slog.String("item", it.ID), slog.String("verb", string(it.Do.Verb)),
			slog.String("resource", it.Ref.String()),
			slog.String("why", it.Alarm))
	}
	return saved, nil
}

// deliver sends the pending notices of the account, including those of other processes. Nothing
// depends on it: undeliverable notices stay pending.
func (s *pass) deliver(ctx context.Context) {
	if s.hasNewNotices = false; !s.Enforce || ctx.Err() != nil {
		return
	}
	for s.failedDeliveries < maxRefusals {
		now := s.Clock().Wall
		n, err := s.Store.ClaimNotice(ctx, s.Account, now, now.Add(claimDuration))
		if err == nil && n == nil {
			return
		}
		if err == nil {
			err = s.recordDelivery(ctx, *n, s.send(ctx, n))
		}
		if err != nil {
			if s.Log != nil {
				s.Log.LogAttrs(ctx, slog.LevelWarn, "notices wait for the next pass",
					slog.String("account", s.Account),
					slog.String("why", Redact(err.Error())))
			}
			return
		}
	}
}

// send delivers a notice and records who accepted it.
func (s *pass) send(ctx context.Context, n *Notice) (err error) {
	if n.AcceptedBy, err = s.sendTo(ctx, n.Recipient, n.Message()); err == nil && n.AcceptedBy == "" {
		return errUnnamed
	}
	return err
}

// recordDelivery records the result of a delivery. The context of the round may have ended since.
func (s *pass) recordDelivery(ctx context.Context, n Notice, failure error) error {
	now := s.Clock().Wall
	e := Entry{At: now, Account: n.Account, Round: s.round.Number, Actor: "curfew", Resource: n.Ref.String(),
		Item: n.Item, Verb: string(n.Verb), Because: n.Message().Because}
	switch {
	case failure == nil:
		n.ClosedAt, n.Error = now, ""
		e.What, e.Outcome = EventNotified, n.Kind+": accepted by "+n.AcceptedBy
		return s.Store.PutNotice(context.WithoutCancel(ctx), n, e)
	case now.Sub(n.CreatedAt) >= abandonAfter:
		n.ClosedAt, n.Error = now, Redact(failure.Error())
		e.What, e.Outcome = EventUnnotified, n.Kind+": "+n.Error
		return s.Store.PutNotice(context.WithoutCancel(ctx), n, e)
	}
	s.failedDeliveries++
	n.Error = Redact(failure.Error())
	n.DueAt = now.Add(min(retryMost, retryFirst<<min(n.Attempts-1, 10)))
	if s.Log != nil {
		s.Log.LogAttrs(ctx, slog.LevelWarn, "notification failed", slog.String("operation", "notify"),
			slog.String("account", n.Account),
			slog.String("item", n.Item), slog.String("kind", n.Kind), slog.Int("attempt", n.Attempts),
			slog.String("why", n.Error))
	}
	return s.Store.PutNotice(context.WithoutCancel(ctx), n)
}
