package act

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

const (
	// maxAlarms is the maximum number of alarms listed individually.
	maxAlarms = 50
	// failedFor is how long a failed action stays listed.
	failedFor = 7 * 24 * time.Hour
	// lateNotice is the age from which an undelivered notice is listed.
	lateNotice = 5 * time.Minute
	// expirySoon is the time before its expiry from which a token is listed.
	expirySoon = 7 * 24 * time.Hour
)

// troubles are the kinds of troubles in the order in which to handle them.
var troubles = []string{
	view.TroubleState, view.TroubleFrozen, view.TroubleDatabase, view.TroubleConfiguration, view.TroubleSource,
	view.TroubleOrganization, view.TroubleFuse, view.TroubleAlarm, view.TroubleNotice, view.TroubleCertificate,
	view.TroubleToken,
}

// restoreHow maps databases to the commands that back up and restore the state.
var restoreHow = map[string]string{
	"sqlite": "`curfew state backup FILE` writes a backup; to restore, stop the service and put the file as curfew.db " +
		"into an empty data directory, then run `curfew audit --verify` on it",
	"postgres": "pg_dump --format=custom writes a backup; to restore, stop the service, fill an empty database with " +
		"pg_restore, then run `curfew audit --verify` on it",
}

// DoctorState lists the problems of the state, and of the service if one responds.
func DoctorState(ctx context.Context, req *runtime.Request) (view.DoctorState, error) {
	_, s, err := req.State(ctx)
	if err != nil {
		return view.DoctorState{}, err
	}
	defer s.Close()
	now, err := req.StateTime(ctx, s)
	if err != nil {
		return view.DoctorState{}, err
	}
	size, err := s.Size(ctx)
	if err != nil {
		return view.DoctorState{}, err
	}
	doc := view.DoctorState{
		Schema: view.DoctorStateSchema, At: now.UTC(), Database: size.Database, Bytes: size.Bytes,
		AuditEntries: size.Entries,
		OldestAt:     size.OldestAt, NewestAt: size.NewestAt, Rounds: []view.AccountRound{},
		Troubles: []view.Trouble{}, OldestChargeAt: size.OldestChargeAt, Restore: restoreHow[size.Database],
	}
	if cfg, err := req.Config(); err == nil {
		if bytes, sessions, err := clouds.KeptOutput(req, cfg); err == nil {
			doc.OutputBytes, doc.OutputSessions = &bytes, &sessions
		}
	}
	sizes := openSizes(req)
	sizes.add(now, size)
	doc.GrowthPerDay, doc.GrowthSince = sizes.growth(now, size.Bytes)
	if b := sizes.Backup; b != nil {
		doc.Backup = &view.NewestBackup{At: b.At, File: b.File, Bytes: b.Bytes}
		if _, err := os.Stat(b.File); err != nil {
			doc.Backup.Missing = true
		}
	}
	rounds, err := s.Rounds(ctx)
	if err != nil {
		return doc, err
	}
	for _, r := range rounds {
		doc.Rounds = append(doc.Rounds, view.AccountRound(r))
	}
	for _, look := range []func(context.Context, *store.Store, time.Time) ([]view.Trouble, error){
		heldBack, blownFuses, alarms, owedNotices, endingTokens,
	} {
		found, err := look(ctx, s, now)
		if err != nil {
			return doc, err
		}
		doc.Troubles = append(doc.Troubles, found...)
	}
	if req.Troubles != nil {
		doc.Troubles = append(doc.Troubles, req.Troubles()...)
	}
	slices.SortStableFunc(doc.Troubles, func(a, b view.Trouble) int {
		return cmp.Compare(slices.Index(troubles, a.What), slices.Index(troubles, b.What))
	})
	return doc, nil
}

// heldBack lists what holds back all actions.
func heldBack(ctx context.Context, s *store.Store, _ time.Time) ([]view.Trouble, error) {
	now, err := standing(ctx, s)
	if err != nil {
		return nil, err
	}
	var out []view.Trouble
	const accept = "`curfew state` shows the losses, `curfew state accept --reason TEXT` lets it act"
	switch {
	case now.Quarantine != nil:
		out = append(out, view.Trouble{
			What: view.TroubleState, Since: now.Quarantine.At, Why: now.Quarantine.Reason, Next: accept,
		})
	case now.Witness != nil && now.Witness.Problem != "":
		out = append(out, view.Trouble{
			What: view.TroubleState, Why: "its witness cannot be used: " + now.Witness.Problem, Next: "`curfew state`",
		})
	}
	frozen, err := s.Actions().Frozen(ctx)
	if err != nil {
		return nil, err
	}
	if frozen != nil && len(out) == 0 {
		out = append(out, view.Trouble{
			What: view.TroubleFrozen, Since: frozen.At.UTC(), Why: "all actions are frozen by " + frozen.By + ": " +
				frozen.Reason,
			Next: "`curfew unfreeze --reason TEXT`"})
	}
	return out, nil
}

func blownFuses(ctx context.Context, s *store.Store, _ time.Time) (out []view.Trouble, err error) {
	fuses, err := s.Actions().Fuses(ctx)
	for _, f := range fuses {
		if f.IsBlown() {
			out = append(out, view.Trouble{
				What: view.TroubleFuse, Since: f.At.UTC(), Why: f.Account + ": " + f.String(),
				Next: "`curfew confirm " + f.Source + " --reason TEXT`"})
		}
	}
	return out, err
}

func alarms(ctx context.Context, s *store.Store, now time.Time) (out []view.Trouble, err error) {
	items, err := s.Alarms(ctx, now.Add(-failedFor), maxAlarms+1)
	unwarned := 0
	for i, it := range items {
		switch {
		case i == maxAlarms:
			out = append(out, view.Trouble{
				What: view.TroubleAlarm, Why: "there are more alarms than these",
				Next: "`curfew audit --what alarm` has all",
			})
		case it.Phase == action.Observed:
			if unwarned++; unwarned > 1 {
				continue // the first line stands for all of them
			}
			fallthrough
		default:
			next := "`curfew audit --item " + it.ID + "`"
			if it.Phase == action.Observed {
				next = "`curfew audit --what unwarned` has all; mend `notify` in curfew.yaml, or tag their owners"
			}
			out = append(out, view.Trouble{
				What: view.TroubleAlarm, Since: it.UpdatedAt.UTC(), Next: next,
				Why: fmt.Sprintf("%s %s: %s", it.Do.Verb, it.Ref.ID, it.Alarm),
			})
		}
	}
	return out, err
}

func owedNotices(ctx context.Context, s *store.Store, now time.Time) (out []view.Trouble, err error) {
	owed, err := s.Actions().Owed(ctx)
	for _, n := range owed {
		if now.Sub(n.CreatedAt) < lateNotice && n.Error == "" {
			continue
		}
		out = append(out, view.Trouble{What: view.TroubleNotice, Since: n.CreatedAt.UTC(), Why: notTold(n),
			Next: "mend `notify` in curfew.yaml; it is tried again at " + plain.Time(n.DueAt)})
	}
	return out, err
}

// notTold names the recipients and subject of an undelivered notice.
func notTold(n action.Notice) string {
	why := fmt.Sprintf("the %s of %s was not notified: %s", n.Recipient, n.Ref.ID, n.Message().Because)
	if n.Error != "" {
		why += "; " + n.Error
	}
	return why
}

func endingTokens(ctx context.Context, s *store.Store, now time.Time) (out []view.Trouble, err error) {
	tokens, err := s.Callers().Tokens(ctx)
	for _, t := range tokens {
		if t.Valid(now) && !t.ShortTerm() && t.ExpiresAt.Sub(now) < expirySoon {
			out = append(out, view.Trouble{
				What: view.TroubleToken, Why: "a token of the API expires at " + plain.Time(t.ExpiresAt),
				Next: "`curfew token list` names its owner"})
		}
	}
	return out, err
}
