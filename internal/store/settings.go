package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
)

// Setting is one version of a setting shared by all processes of a state.
type Setting struct {
	// Kind names the setting; versions of a kind are numbered from 1.
	Kind    string
	Version int64
	At      time.Time
	// Who is the proven identity of the author, Reason the author's reason.
	Who, Reason string
	// Body is the text of the file that was set.
	Body string
}

// ErrSettingConflict is returned if another version was set meanwhile.
var ErrSettingConflict = errors.New("another version was set meanwhile")

type settingRow struct {
	Kind    string  `db:"kind"`
	Version int64   `db:"version"`
	At      instant `db:"at"`
	Who     string  `db:"who"`
	Reason  string  `db:"reason"`
	Body    string  `db:"body"`
}

var settingTable = describe("settings", settingRow{})

func (r settingRow) setting() Setting {
	return Setting{Kind: r.Kind, Version: r.Version, At: r.At.Time, Who: r.Who, Reason: r.Reason, Body: r.Body}
}

// Settings stores shared settings.
type Settings struct{ db *database }

// Settings returns the settings that admins set for every process.
func (s *Store) Settings() Settings { return Settings{s.db} }

// SettingChange is a new version with its entry in the audit log.
type SettingChange struct {
	Setting Setting
	Entry   action.Entry
}

// Put writes the next version of each kind and records it, in one transaction; ErrSettingConflict
// if that version exists already. Nothing is overwritten.
func (s Settings) Put(ctx context.Context, changes ...SettingChange) error {
	return s.db.transact(ctx, func(t *tx) error {
		for _, c := range changes {
			if err := t.putSetting(ctx, c.Setting, c.Entry); err != nil {
				return fmt.Errorf("write version %d of the settings %s: %w", c.Setting.Version, c.Setting.Kind, err)
			}
		}
		return nil
	})
}

func (t *tx) putSetting(ctx context.Context, v Setting, e action.Entry) error {
	row := settingRow{v.Kind, v.Version, at(v.At), prose(v.Who), prose(v.Reason), v.Body}
	err := exact(v.Kind, v.Body)
	if err == nil && (v.Kind == "" || v.Version < 1 || v.At.IsZero()) {
		err = errors.New("it needs a kind, a version from 1 and a time")
	}
	if err != nil {
		return err
	}
	var newest int64
	if err := t.get(ctx, &newest,
		"SELECT COALESCE(MAX(version), 0) FROM settings WHERE kind = ?", v.Kind); err != nil {
		return err
	}
	if newest != v.Version-1 {
		return ErrSettingConflict
	}
	written, err := t.named(ctx, settingTable().insert+" ON CONFLICT (kind, version) DO NOTHING", row)
	if err != nil {
		return err
	}
	if written == 0 {
		return ErrSettingConflict
	}
	return t.record(e)
}

// Versions returns the versions of a kind, newest first; none if nothing was set.
func (s Settings) Versions(ctx context.Context, kind string) ([]Setting, error) {
	return s.list(ctx, kind, "")
}

// Newest returns the current version; ok is false if nothing was set.
func (s Settings) Newest(ctx context.Context, kind string) (v Setting, ok bool, err error) {
	all, err := s.list(ctx, kind, " LIMIT 1")
	if err != nil || len(all) == 0 {
		return Setting{}, false, err
	}
	return all[0], true, nil
}

func (s Settings) list(ctx context.Context, kind, limit string) ([]Setting, error) {
	var rows []settingRow
	if err := s.db.list(ctx, &rows, settingTable().query+" WHERE kind = ? ORDER BY version DESC"+
		limit, kind); err != nil {
		return nil, fmt.Errorf("read the settings %s: %w", kind, err)
	}
	return convert(rows, settingRow.setting), nil
}
