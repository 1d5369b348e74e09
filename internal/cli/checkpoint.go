package cli

import (
	"errors"
	"path"
	"strconv"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	apphost "github.com/curfew-dev/curfew/internal/app/host"
	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/report"
)

func (a *app) newCheckpoint() *cobra.Command {
	c := &cobra.Command{
		Use:   "checkpoint",
		Short: "Save a folder as durable, verified, incremental snapshots, and restore it",
		Long: `Saves folders as snapshots in an object store (s3://bucket/prefix) or a folder
(file:///folder), and restores them. A URL is one run: one series of snapshots with one
writer. Only what changed is sent. See docs/checkpoints.md.`,
		Args: noSuchVerb,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.newCheckpointSave(), a.newCheckpointRestore(), a.newCheckpointList(), a.newCheckpointVerify(),
		a.newCheckpointGC())
	return c
}

// storeFlags choose a checkpoint store and the resources of the machine that a command may use.
type storeFlags struct {
	apphost.CheckpointStore
	bandwidth string
	nice      int
}

func (f *storeFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.Profile, "profile", "", "AWS profile")
	c.Flags().StringVar(&f.bandwidth, "bandwidth", "",
		"`limit` of the traffic in each direction per second, such as 50MB (default: none)")
	c.Flags().IntVar(&f.nice, "nice", 10,
		"CPU and disk niceness on Linux: 0 is that of a normal process, 19 yields to all others")
}

// apply checks the flags and takes a URL.
func (f *storeFlags) apply(url string) error {
	f.URL = url
	if f.bandwidth != "" {
		n, err := humanize.ParseBytes(f.bandwidth)
		if err != nil || n < 1<<10 || n > 1<<50 {
			return usageError("--bandwidth %q: it is a number of bytes in a second, 1kB or more, such as 50MB",
				f.bandwidth)
		}
		f.Bandwidth = int64(n)
	}
	if f.nice < 0 || f.nice > 19 {
		return usageError("--nice %d: it is 0 to 19", f.nice)
	}
	return apphost.Yield(f.nice)
}

// retentionFlags choose the snapshots to keep.
type retentionFlags struct {
	keep    int
	keepFor string
}

func (f *retentionFlags) add(c *cobra.Command, keep int, none string) {
	c.Flags().IntVar(&f.keep, "keep", keep, "how many complete snapshots are kept; "+none)
	c.Flags().StringVar(&f.keepFor, "keep-for", "", "keep each snapshot that is younger as well, such as 7d")
}

func (f *retentionFlags) retention() (checkpoint.Retention, error) {
	r := checkpoint.Retention{Keep: f.keep}
	if f.keep < 0 {
		return r, usageError("--keep %d: it is 0 or more", f.keep)
	}
	if f.keepFor != "" {
		d, err := config.ParseDuration(f.keepFor)
		if err != nil || d <= 0 {
			return r, usageError("--keep-for %q: it is a duration such as 7d", f.keepFor)
		}
		r.KeepFor = d
	}
	return r, nil
}

func (a *app) newCheckpointSave() *cobra.Command {
	var f storeFlags
	var keep retentionFlags
	var o apphost.CheckpointSaveOptions
	var deadline, quiet, patience string
	c := &cobra.Command{
		Use:   "save DIR URL",
		Short: "Save a folder as the next snapshot of a run",
		Long: `Saves a folder as the next snapshot of the run at URL: what changed is stored first, then
the manifest that names it, then HEAD. The snapshot before stays until the new one is
complete. A file with the size, inode and times that it had at the last save from this
machine is not read again (--read-all does). The command claims the run: an earlier process that saves it can no longer write.

A checkpoint counts as finished when the training declared it (CURFEW_RUN_DIR), it was
renamed into place, --done finds its marker, or --exited says that the process ended. Else
it has to stay unchanged while it is read, for --quiet-for at least, and is shown as weaker.

With --deadline the newest files are saved first, as many as fit at the measured rate; the
others stay as in the snapshot before. Exit code 5: something was not saved, or changed
while it was read; the output names it.

On several nodes each rank saves its own folder at the same time, with --rank and --ranks.
There is one snapshot of all ranks, or none if one does not come within --wait.`,
		Example: `  curfew checkpoint save ckpt file://$HOME/runs/resnet50
  curfew checkpoint save ckpt s3://bucket/runs/resnet50 --keep 3
  curfew checkpoint save ckpt s3://bucket/runs/resnet50 --done '*/DONE' --bandwidth 100MB
  curfew checkpoint save ckpt s3://bucket/runs/resnet50 --deadline 90s
  curfew checkpoint save ckpt s3://bucket/runs/resnet50 --rank 1 --ranks 4`,
		Args: twoArgs("a folder and a URL"),
		RunE: func(c *cobra.Command, args []string) error {
			var err error
			if o.Retention, err = keep.retention(); err != nil {
				return err
			}
			if o.Quiet, err = config.ParseDuration(quiet); err != nil || o.Quiet < 0 {
				return usageError("--quiet-for %q: it is a duration such as 2s", quiet)
			}
			if deadline != "" {
				if o.Within, err = config.ParseDuration(deadline); err != nil || o.Within <= 0 {
					return usageError("--deadline %q: it is a duration such as 90s", deadline)
				}
				if !c.Flags().Changed("nice") {
					f.nice = 0
				}
			}
			if _, err := path.Match(o.Evidence.DonePattern, ""); err != nil {
				return usageError("--done %q: it is a pattern of paths in the folder, such as '*/DONE'",
					o.Evidence.DonePattern)
			}
			if o.Workers < 1 || o.Workers > 64 || o.Uploads < 1 || o.Uploads > 64 {
				return usageError("--workers %d --uploads %d: each is 1 to 64", o.Workers, o.Uploads)
			}
			ranked := c.Flags().Changed("rank") || c.Flags().Changed("ranks")
			if ranked && (o.Ranks < 1 || o.Ranks > 10_000 || o.Rank < 0 || o.Rank >= o.Ranks) {
				return usageError("--rank %d --ranks %d: of 4 ranks each is 0 to 3", o.Rank, o.Ranks)
			}
			if c.Flags().Changed("wait") && !ranked {
				return usageError("--wait is for the other ranks: give --rank and --ranks as well")
			}
			if o.Patience, err = config.ParseDuration(patience); err != nil || o.Patience <= 0 {
				return usageError("--wait %q: it is a duration such as 10m", patience)
			}
			if err := f.apply(args[1]); err != nil {
				return err
			}
			doc, err := apphost.CheckpointSave(c.Context(), a.req, args[0], f.CheckpointStore, o)
			if err != nil {
				return err
			}
			if err := a.show(doc, func() report.Sheet { return report.CheckpointSave(doc, a.globals()) }); err != nil {
				return err
			}
			if doc.Snapshot.State != checkpoint.Complete {
				return &failure{exit: ExitPartial}
			}
			return nil
		},
	}
	f.add(c)
	keep.add(c, 0, "0 keeps all")
	fl := c.Flags()
	fl.StringVar(&o.Evidence.DonePattern, "done", "",
		"`pattern` of the marker of a finished checkpoint, such as '*/DONE', or of its folder")
	fl.StringVar(&o.RunDir, "run-dir", "",
		"`folder` in which the training declares what it saved (default: CURFEW_RUN_DIR)")
	fl.BoolVar(&o.Evidence.WriterExited, "exited", false, "the process that writes the folder has ended")
	fl.StringVar(&quiet, "quiet-for", "2s",
		"how long files have to stay unchanged where nothing else says that they are finished")
	fl.StringVar(&deadline, "deadline", "", "time that a final save has, such as `90s`")
	fl.BoolVar(&o.Full, "full", false, "store everything again, also what the snapshot before has")
	fl.BoolVar(&o.ReadAll, "read-all", false,
		"read also files with the size, inode and times that they had at the last save")
	fl.IntVar(&o.Rank, "rank", 0, "which of several nodes this is; rank 0 claims the run and collects by --keep")
	fl.IntVar(&o.Ranks, "ranks", 0, "`number` of nodes that save one snapshot together")
	fl.StringVar(&patience, "wait", "10m", "how long a rank waits for the others")
	fl.IntVar(&o.Workers, "workers", 2, "threads that hash and compress")
	fl.IntVar(&o.Uploads, "uploads", 4, "parts that are stored at the same time; each takes about 9 MiB of memory")
	a.outputs(c, tableJSON...)
	return c
}

// twoArgs requires two arguments and describes them.
func twoArgs(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != 2 {
			return usageError("%s takes %s", c.CommandPath(), what)
		}
		return nil
	}
}

func (a *app) newCheckpointRestore() *cobra.Command {
	var f storeFlags
	var o checkpoint.RestoreOptions
	c := &cobra.Command{
		Use:   "restore URL DIR",
		Short: "Restore the newest complete snapshot of a run to a folder",
		Long: `Reads and verifies a whole snapshot next to the folder, and puts it in place only then. A
snapshot that is damaged, or whose files changed while they were saved, is skipped for the
one before it; the output says which and why, and the exit code is 5.

If this user has seen a newer snapshot of the run, an older one is restored only if
--snapshot names it: the store may have been rolled back.`,
		Example: `  curfew checkpoint restore file://$HOME/runs/resnet50 restored
  curfew checkpoint restore s3://bucket/runs/resnet50 ckpt --snapshot 12 --replace`,
		Args: twoArgs("a URL and a folder"),
		RunE: func(c *cobra.Command, args []string) error {
			if o.Seq < 0 {
				return usageError("--snapshot %d: it is the number of a snapshot, which curfew checkpoint list shows",
					o.Seq)
			}
			if err := f.apply(args[0]); err != nil {
				return err
			}
			doc, err := apphost.CheckpointRestore(c.Context(), a.req, f.CheckpointStore, args[1], o)
			if err := shown(a, report.CheckpointRestore)(doc, err); err != nil {
				return err
			}
			if len(doc.Skipped) > 0 || doc.Snapshot.State == checkpoint.Partial {
				return &failure{exit: ExitPartial}
			}
			return nil
		},
	}
	f.add(c)
	c.Flags().Int64Var(&o.Seq, "snapshot", 0, "`number` of the snapshot (default: the newest that is complete)")
	c.Flags().BoolVar(&o.Replace, "replace", false, "replace a folder that is not empty")
	c.Flags().IntVar(&o.Rank, "rank", 0, "which node's folder, of a snapshot of several nodes")
	a.outputs(c, tableJSON...)
	return c
}

func (a *app) newCheckpointList() *cobra.Command {
	var f storeFlags
	c := &cobra.Command{
		Use:   "list URL",
		Short: "List the snapshots of a run",
		Example: `  curfew checkpoint list file://$HOME/runs/resnet50
  curfew checkpoint list s3://bucket/runs/resnet50 -o json`,
		Args: oneArg("the URL of a run"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.apply(args[0]); err != nil {
				return err
			}
			doc, err := apphost.CheckpointList(c.Context(), a.req, f.CheckpointStore)
			if err != nil {
				return err
			}
			return a.show(doc, func() report.Sheet { return report.CheckpointList(doc, a.globals()) })
		},
	}
	f.add(c)
	a.outputs(c, tableJSON...)
	return c
}

func (a *app) newCheckpointVerify() *cobra.Command {
	var f storeFlags
	var seq int64
	c := &cobra.Command{
		Use:   "verify URL",
		Short: "Verify all snapshots of a run, and name damaged objects",
		Long: `Reads every manifest and every part of the snapshots of a run, and verifies their
checksums. Exit code 5: an object is damaged or missing, or a newer snapshot
was seen here before; the output names it and the newest snapshot that can still be restored.`,
		Example: `  curfew checkpoint verify file://$HOME/runs/resnet50
  curfew checkpoint verify s3://bucket/runs/resnet50 --snapshot 12`,
		Args: oneArg("the URL of a run"),
		RunE: func(c *cobra.Command, args []string) error {
			if seq < 0 {
				return usageError("--snapshot %s: it is the number of a snapshot", strconv.FormatInt(seq, 10))
			}
			if err := f.apply(args[0]); err != nil {
				return err
			}
			doc, err := apphost.CheckpointVerify(c.Context(), a.req, f.CheckpointStore, seq, 0)
			if err != nil {
				return err
			}
			if err := a.show(doc, func() report.Sheet {
				return report.CheckpointVerify(doc, a.globals())
			}); err != nil {
				return err
			}
			if len(doc.Damage) > 0 || doc.RolledBack {
				return &failure{exit: ExitPartial}
			}
			return nil
		},
	}
	f.add(c)
	c.Flags().Int64Var(&seq, "snapshot", 0, "`number` of one snapshot (default: all)")
	a.outputs(c, tableJSON...)
	return c
}

func (a *app) newCheckpointGC() *cobra.Command {
	const now = "--now deletes objects younger than 24h: a save or a restore of this run that is under way may need " +
		"them and then fails"
	var f storeFlags
	var keep retentionFlags
	var immediate, yes bool
	c := &cobra.Command{
		Use:   "gc URL",
		Short: "Drop old snapshots of a run and delete what none needs",
		Long: `Claims the run, drops snapshots beyond --keep and --keep-for, and deletes objects that no
snapshot needs, if they are older than 24h by the store's clock. Uploads that no one ended
are aborted. A process that saves the run at the same time can write no more: collect with
curfew checkpoint save --keep there instead.

--now deletes younger objects too, which frees a full disk. A save or a restore that is under
way may need them and then fails: end it first. The command asks before it starts.`,
		Example: `  curfew checkpoint gc file://$HOME/runs/resnet50 --keep 3
  curfew checkpoint gc file://$HOME/runs/resnet50 --keep 1 --now
  curfew checkpoint gc s3://bucket/runs/resnet50 --keep 3 --keep-for 7d`,
		Args: oneArg("the URL of a run"),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := keep.retention()
			if err != nil {
				return err
			}
			r.Now = immediate
			if yes && !r.Now {
				return usageError("--yes is for --now, which asks before it deletes objects younger than 24h")
			}
			if err := f.apply(args[0]); err != nil {
				return err
			}
			if r.Now {
				if err := a.askFirst(yes, now+". Delete them?", &failure{
					exit: ExitUsage, code: "no_consent", err: errors.New(now), hint: "end it first, and give --yes",
				}); err != nil {
					return err
				}
			}
			doc, err := apphost.CheckpointGC(c.Context(), a.req, f.CheckpointStore, r)
			return shown(a, report.CheckpointGC)(doc, err)
		},
	}
	f.add(c)
	keep.add(c, 3, "0 drops none")
	c.Flags().BoolVar(&immediate, "now", false, "delete also objects younger than 24h, which frees a full disk")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask before --now deletes")
	a.outputs(c, tableJSON...)
	return c
}
