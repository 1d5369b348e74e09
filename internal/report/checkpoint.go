package report

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// snapshotState formats the state of a snapshot and its verification.
func snapshotState(s checkpoint.Snapshot) string {
	known := map[checkpoint.Finished]string{
		checkpoint.Declared: "declared by the training", checkpoint.Renamed: "renamed into place",
		checkpoint.Marked: "marker found",
		checkpoint.Exited: "the process exited", checkpoint.Quiescent: "unchanged while read, which is weaker",
	}
	if how := known[s.Finished]; how != "" {
		return string(s.State) + " (" + how + ")"
	}
	return string(s.State)
}

func stepOf(s checkpoint.Snapshot) string {
	if s.Step == nil {
		return "unknown"
	}
	return strconv.FormatInt(*s.Step, 10)
}

func leftOut(list []checkpoint.LeftOut) []layout.Grid {
	if len(list) == 0 {
		return nil
	}
	g := layout.Grid{
		Title: "Not in the snapshot as it is in the folder", Head: []string{"path", "size", "because"},
		Right: []bool{false, true, false},
	}
	for _, l := range list {
		g.Rows = append(g.Rows, []string{l.Path, plain.Size(l.Bytes), l.Why})
	}
	return []layout.Grid{g}
}

// took formats a duration and the resulting rate.
func took(seconds float64, size int64) string {
	d := time.Duration(seconds * float64(time.Second))
	if seconds <= 0 || size == 0 {
		return plain.Duration(d)
	}
	if d < time.Second {
		return fmt.Sprintf("under 1s, %s/s", plain.Size(float64(size)/seconds))
	}
	return fmt.Sprintf("%s, %s/s", plain.Duration(d.Round(time.Second)), plain.Size(float64(size)/seconds))
}

// readNote returns the part of the folder that was read.
func readNote(d view.CheckpointSave) string {
	note := plain.Size(d.ReadBytes) + " read"
	if d.UnreadFiles > 0 {
		note += ", " + plain.Count(d.UnreadFiles, "file") + " unchanged and not read"
	}
	return note
}

// CheckpointSave shows the result of a save.
func CheckpointSave(d view.CheckpointSave, globals string) layout.Sheet {
	s := layout.Sheet{
		Verb: "checkpoint save",
		Title: fmt.Sprintf("Snapshot %d saved: %s, %s", d.Snapshot.Seq, plain.Count(d.Snapshot.Files, "file"),
			plain.Size(d.Snapshot.Bytes)),
	}
	switch {
	case d.Snapshot.State == checkpoint.Partial:
		s.Title += "; the deadline left some of the folder unsaved"
	case d.Snapshot.State == checkpoint.Unsettled:
		s.Title += "; it is not complete, because files changed while they were read"
	}
	s.Figures = []layout.Figure{
		{Label: "state", Value: snapshotState(d.Snapshot)},
		{Label: "newest step", Value: stepOf(d.Snapshot)},
		{Label: "sent", Value: plain.Size(d.SentBytes), Note: readNote(d)},
		{Label: "time", Value: took(d.Seconds, d.ReadBytes)},
		{Label: "writer", Value: d.Attempt},
	}
	url := plain.Shell(d.URL)
	s.Next = []string{"curfew checkpoint list " + url + globals, "curfew checkpoint restore " + url + " DIR" + globals}
	s.Tables = leftOut(d.LeftOut)
	for _, u := range d.Unsettled {
		s.Coverage = append(s.Coverage, u+" changed while it was read")
	}
	s.Coverage = append(s.Coverage, d.Notes...)
	if c := d.Collected; c != nil {
		s.Coverage = append(s.Coverage, collected(*c))
	}
	return s
}

func collected(c view.CheckpointCollected) string {
	text := fmt.Sprintf("%s dropped, %s deleted (%s)", plain.Count(len(c.DroppedSnapshots), "snapshot"),
		plain.Count(c.DeletedObjects, "object"), plain.Size(c.DeletedBytes))
	if c.AbortedUploads > 0 {
		text += ", " + plain.Count(c.AbortedUploads, "abandoned upload") + " aborted"
	}
	if c.TooYoung > 0 {
		text += ", " + plain.Count(c.TooYoung, "unused object") + " younger than 24h kept"
	}
	return text
}

// CheckpointRestore shows the result of a restore.
func CheckpointRestore(d view.CheckpointRestore) layout.Sheet {
	s := layout.Sheet{
		Verb: "checkpoint restore",
		Title: fmt.Sprintf("Snapshot %d restored to %s: %s, %s", d.Snapshot.Seq, d.Dir,
			plain.Count(d.Snapshot.Files, "file"), plain.Size(d.Snapshot.Bytes)),
	}
	s.Figures = []layout.Figure{
		{Label: "saved", Value: plain.Time(d.Snapshot.At)},
		{Label: "state", Value: snapshotState(*d.Snapshot)},
		{Label: "newest step", Value: stepOf(*d.Snapshot)},
		{Label: "time", Value: took(d.Seconds, d.Snapshot.Bytes)},
	}
	if len(d.Skipped) > 0 {
		s.Title += "; " + plain.Count(len(d.Skipped), "newer snapshot") + " skipped"
		g := layout.Grid{Title: "Skipped", Head: []string{"snapshot", "saved", "because"}, Right: []bool{true}}
		for _, x := range d.Skipped {
			g.Rows = append(g.Rows, []string{strconv.FormatInt(x.Seq, 10), plain.Time(x.At), x.Why})
		}
		s.Tables = append(s.Tables, g)
	}
	s.Tables = append(s.Tables, leftOut(d.LeftOut)...)
	s.Coverage = d.Notes
	return s
}

// CheckpointList shows the snapshots of a run.
func CheckpointList(d view.CheckpointList, globals string) layout.Sheet {
	s := layout.Sheet{
		Verb: "checkpoint list", Title: fmt.Sprintf("%s in %s", plain.Count(len(d.Snapshots), "snapshot"), d.URL),
	}
	if d.Epoch > 0 {
		s.Figures = []layout.Figure{
			{
				Label: "writer", Value: d.Writer,
				Note: fmt.Sprintf("epoch %d, since %s", d.Epoch, plain.Time(d.ClaimedAt)),
			},
		}
	}
	g := layout.Grid{
		Head:  []string{"snapshot", "saved", "step", "files", "size", "sent", "state"},
		Right: []bool{true, false, true, true, true, true},
	}
	for _, x := range d.Snapshots {
		g.Rows = append(g.Rows, []string{
			strconv.FormatInt(x.Seq, 10), plain.Time(x.At), stepOf(x),
			strconv.FormatInt(x.Files, 10), plain.Size(x.Bytes),
			plain.Size(x.NewBytes), snapshotState(x),
		})
	}
	if len(g.Rows) > 0 {
		s.Tables = []layout.Grid{g}
		s.Next = []string{"curfew checkpoint verify " + plain.Shell(d.URL) + globals}
	}
	s.Coverage = d.Notes
	return s
}

// CheckpointVerify shows the result of a verification.
func CheckpointVerify(d view.CheckpointVerify, globals string) layout.Sheet {
	s := layout.Sheet{
		Verb: "checkpoint verify",
		Title: fmt.Sprintf("No damage: %s, %s, %s read", plain.Count(len(d.Snapshots), "snapshot"),
			plain.Count(d.Parts, "part"), plain.Size(d.Bytes)),
	}
	s.Coverage = d.Notes
	if len(d.Damage) == 0 {
		return s
	}
	s.Title = fmt.Sprintf("Damaged: %s", plain.Count(len(d.Damage), "object"))
	if d.Restorable != nil {
		s.Title += fmt.Sprintf("; snapshot %d is the newest that can be restored", *d.Restorable)
	} else {
		s.Title += "; no snapshot can be restored"
	}
	s.Next = []string{"curfew checkpoint save DIR " + plain.Shell(d.URL) + " --full" + globals}
	g := layout.Grid{Head: []string{"object", "snapshots", "because"}}
	for _, x := range d.Damage {
		g.Rows = append(g.Rows, []string{
			x.Key, strings.Trim(strings.ReplaceAll(fmt.Sprint(x.Seqs), " ", ", "), "[]"), x.Why,
		})
	}
	s.Tables = []layout.Grid{g}
	return s
}

// CheckpointGC shows the result of a garbage collection.
func CheckpointGC(d view.CheckpointGC) layout.Sheet {
	s := layout.Sheet{
		Verb:     "checkpoint gc",
		Title:    fmt.Sprintf("%s kept: %s", plain.Count(d.Kept, "snapshot"), collected(d.CheckpointCollected)),
		Coverage: d.Notes,
	}
	s.Assumptions = []string{
		"Nothing younger than 24h by the store's clock is deleted, and nothing that a kept snapshot needs.",
	}
	return s
}
