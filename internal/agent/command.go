package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/code"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/wait"
)

// commandEnd is the end of a job's command.
type commandEnd struct {
	// code is its exit status, nil if none was left because the processes were killed.
	code *int
	err  error
}

// commandScript returns the command of a job as a script.
func (b *bootstrap) commandScript() *script {
	return &script{
		bootstrap: b, name: "command", text: b.options.Host.Command.Run, env: b.withSecrets,
		of: func(st *state) *scriptState { return &st.Command },
	}
}

// runCommand starts the command of a job, once, and returns how it ended. A command whose process
// is gone without an exit status was killed; it is not run again here.
func (b *bootstrap) runCommand(ctx context.Context, now time.Time) commandEnd {
	s := b.commandScript()
	if s.read().PID == 0 {
		if err := errors.Join(os.MkdirAll(b.runDir(), 0o755), b.withdrawStop()); err != nil {
			return commandEnd{err: err}
		}
		errorsBefore, err := b.gpuErrors(ctx)
		if err != nil {
			b.addEvent("gpu", "the memory errors of GPUs are unknown: "+err.Error())
		}
		if err := s.start(ctx); err != nil {
			return commandEnd{err: err}
		}
		if err := b.updateState(func(st *state) {
			st.CommandAt, st.Kills, st.GPUErrors = now.UTC(), kernelKills(), errorsBefore
		}); err != nil {
			return commandEnd{err: err}
		}
	}
	for {
		running := s.alive()
		text, ended, err := s.exitStatus() // before its output is read, which is complete then
		if err != nil {
			return commandEnd{err: err}
		}
		if err := s.sendOutput(ended || !running); err != nil {
			return commandEnd{err: err}
		}
		switch {
		case ended:
			n, err := strconv.Atoi(text)
			if err != nil {
				return commandEnd{err: fmt.Errorf("read the exit status: %w", err)}
			}
			return commandEnd{code: &n}
		case !running:
			if _, ended, _ := s.exitStatus(); !ended { // it may have been written since
				return commandEnd{}
			}
			continue
		}
		if err := wait.For(ctx, b.commandInterval); err != nil {
			return commandEnd{err: err}
		}
	}
}

// commandRuns reports whether the command of a job has started and not ended.
func (h *host) commandRuns() bool {
	st := h.readState()
	return h.options.Host.Command != nil && st.Command.PID != 0 && st.Outcome == nil
}

// writerExited reports whether the command of a job ended by itself and left no process.
func (h *host) writerExited() bool {
	o := h.readState().Outcome
	if o == nil || o.ExitCode == nil {
		return false
	}
	pids, err := h.options.Cage.Killable()
	return err == nil && len(pids) == 0
}

// writerKilled reports whether the command of a job was killed, possibly while it wrote a file.
func (h *host) writerKilled() bool {
	o := h.readState().Outcome
	return o != nil && o.ExitCode == nil
}

// startCommand runs the command of a job unless it has ended.
func (h *host) startCommand(ctx context.Context) {
	if h.options.Host.Command == nil || h.readState().Outcome != nil {
		return
	}
	h.progressAt, h.commandWatched = h.now, true
	begin := h.options.Now()
	go func() { h.commandEnds <- h.bootstrap.runCommand(ctx, begin) }()
}

// handleCommandEnd records how the command ended, and begins the end of the session.
func (h *host) handleCommandEnd(ctx context.Context, end commandEnd) error {
	h.commandWatched = false
	if ctx.Err() != nil {
		return nil //nolint:nilerr // a later process continues
	}
	o := h.classify(end)
	if o.Class == session.Succeeded && h.options.Host.Command.ArtifactsDir != "" {
		h.keepArtifacts(ctx, o)
		return nil
	}
	return h.recordOutcome(o)
}

// lastOutputTimeout bounds the wait for the last output of a command whose processes are gone.
const lastOutputTimeout = 10 * time.Second

// settleCommand records the outcome of a command whose processes are gone as its session ends, once its
// output is read.
func (h *host) settleCommand() error {
	if !h.commandRuns() {
		return nil
	}
	s := h.bootstrap.commandScript()
	if s.alive() {
		return nil
	}
	end := commandEnd{}
	timeout := time.Duration(0)
	if h.commandWatched {
		timeout = lastOutputTimeout
	}
	select {
	case end = <-h.commandEnds:
	case <-time.After(timeout):
		text, ended, err := s.exitStatus()
		if n, invalid := strconv.Atoi(text); err == nil && ended && invalid == nil {
			end.code = &n
		}
	}
	o := h.classify(end)
	if o.Class == session.Succeeded && h.options.Host.Command.ArtifactsDir != "" {
		return nil // it succeeds once its artifacts are kept
	}
	return h.recordOutcome(o)
}

// recordOutcome makes an outcome durable.
func (h *host) recordOutcome(o session.Outcome) error {
	if h.readState().Outcome != nil {
		return nil
	}
	h.journal.add("command", o.Text())
	return h.updateState(func(st *state) { st.Outcome = &o })
}

// endAfterCommand begins the end of a session whose command ended. A success of one of several nodes
// waits for the others; a failure may keep the machine for its owner.
func (h *host) endAfterCommand() {
	o := h.readState().Outcome
	c := h.options.Host.Command
	if o == nil || c == nil {
		return
	}
	if o.Class == session.Succeeded && h.options.Host.Nodes > 1 {
		return
	}
	failed := o.Class != session.Succeeded && o.Class != session.Stopped && o.Class != session.Interrupted
	if keep := o.At.Add(time.Duration(c.KeepOnFailure)); failed && c.KeepOnFailure > 0 && h.now.Before(keep) {
		h.phaseReason = "the command ended (" + o.Text() + "); the machine is kept until " + plain.Time(keep)
		return
	}
	h.beginEnd(ending{Cause: causeCommand, Why: "its command ended: " + o.Text()})
}

// noteProgress reads what the command declared, and ends a command that makes no progress.
func (h *host) noteProgress() {
	c := h.options.Host.Command
	events, err := h.events.Read()
	if err != nil {
		h.options.Log(err.Error())
		return
	}
	if n := len(events.Saved); n > h.declared {
		h.declared, h.progressAt, h.declaredAt = n, h.now, h.now
		h.noteWork("its training declared a checkpoint")
	}
	if highest := h.events.HighestStep(); highest != nil && (h.step == nil || *highest > *h.step) {
		h.step, h.stepAt, h.progressAt = highest, h.now, h.now
		h.noteWork("its training declared a new step")
	}
	if c == nil || c.StallLimit <= 0 || !h.commandRuns() || h.ending != nil ||
		h.now.Sub(h.progressAt) < time.Duration(c.StallLimit) {
		return
	}
	last := "none was declared"
	if h.step != nil {
		last = fmt.Sprintf("the last is %d", *h.step)
	}
	h.stalled = fmt.Sprintf("no new step for %s; %s", plain.Duration(time.Duration(c.StallLimit)), last)
	h.beginEnd(ending{Cause: causeStall, Why: "it makes no progress: " + h.stalled})
}

// commandStatus returns the report about the command of a job; nil before it started.
func (h *host) commandStatus(st *state) *session.CommandStatus {
	if h.options.Host.Command == nil || st.CommandAt.IsZero() {
		return nil
	}
	c := &session.CommandStatus{StartedAt: st.CommandAt.Truncate(time.Second), Step: h.step, Outcome: st.Outcome}
	if from := st.Restored; from.Manifest != "" {
		c.Restored = &from
	}
	if h.step != nil {
		c.StepAt = h.stepAt.UTC().Truncate(time.Second)
	}
	return c
}

// classify returns the class of the end of a command, with its evidence.
func (h *host) classify(end commandEnd) session.Outcome {
	o := session.Outcome{At: h.now.UTC().Truncate(time.Second), Node: h.options.Host.Node}
	st := h.readState()
	tail := tailOf(h.bootstrap.commandScript().logFile())
	signal := syscall.Signal(0)
	switch {
	case end.err != nil:
		o.Class, o.Evidence = session.OwnError, "the command could not be run: "+end.err.Error()
		return o
	case end.code == nil:
		o.Evidence = "its processes were killed, and left no exit status"
	case *end.code > 128 && *end.code <= 128+64:
		signal = syscall.Signal(*end.code - 128)
		o.Signal = signalName(signal)
		o.Evidence = fmt.Sprintf("exit status %d: %s", *end.code, o.Signal)
	default:
		o.ExitCode = end.code
		o.Evidence = fmt.Sprintf("exit code %d", *end.code)
	}
	asked := h.ending != nil && !h.ending.AskedAt.IsZero()
	kills := kernelKills() - st.Kills
	switch {
	case h.stalled != "":
		o.Class, o.Evidence = session.Stalled, h.stalled
	case h.notice != nil:
		o.Class, o.Evidence = session.Interrupted, "the provider announced that it takes the machine at "+
			plain.Time(h.notice.at)+"; "+o.Evidence
	case asked:
		o.Class, o.Evidence = session.Stopped, "it was asked to stop; "+o.Evidence
	case o.ExitCode != nil && *o.ExitCode == 0:
		o.Class = session.Succeeded
	case kills > 0 && (end.code == nil || signal == syscall.SIGKILL):
		o.Class = session.OutOfMemory
		o.Evidence += fmt.Sprintf("; the kernel killed %s for lack of memory", plain.Count(int(kills), "process"))
	default:
		o.Class = session.Interrupted
		if o.ExitCode != nil {
			o.Class = session.OwnError
		}
		if fault := h.gpuFault(st.GPUErrors); fault != "" {
			o.Class = session.GPUFault
			o.Evidence += "; " + fault
		} else if class, line := classOfOutput(tail); class != "" {
			o.Class = class
			o.Evidence += "; its output: " + line
		} else if full := fullDisk(h.work.dir, h.bootstrap.workDir); full != "" {
			o.Class = session.DiskFull
			o.Evidence += "; " + full
		}
	}
	return o
}

// outputClasses are lines of output that prove a class, each all of whose texts a line has.
var outputClasses = []struct {
	class session.Class
	texts []string
}{
	{session.GPUFault, []string{"uncorrectable ECC error"}},
	{session.GPUFault, []string{"CUDA error: an illegal instruction"}},
	{session.GPUFault, []string{"GPU has fallen off the bus"}},
	{session.GPUFault, []string{"NVRM: Xid"}},
	{session.GPUMemory, []string{"CUDA out of memory"}},
	{session.GPUMemory, []string{"RESOURCE_EXHAUSTED: Out of memory"}},
	{session.GPUMemory, []string{"CUDA_ERROR_OUT_OF_MEMORY"}},
	{session.Rendezvous, []string{"NCCL", "timeout"}},
	{session.Rendezvous, []string{"NCCL", "timed out"}},
	{session.Rendezvous, []string{"RendezvousTimeoutError"}},
	{session.Rendezvous, []string{"RendezvousConnectionError"}},
	{session.Rendezvous, []string{"collective operation timeout"}},
	{session.DiskFull, []string{"No space left on device"}},
	{session.DiskFull, []string{"Disk quota exceeded"}},
	{session.OutOfMemory, []string{"MemoryError"}},
	{session.OutOfMemory, []string{"Cannot allocate memory"}},
}

// classOfOutput finds a class and the line that proves it in the end of the output.
func classOfOutput(tail []byte) (session.Class, string) {
	for line := range bytes.Lines(tail) {
		for _, c := range outputClasses {
			all := true
			for _, text := range c.texts {
				all = all && bytes.Contains(line, []byte(text))
			}
			if all {
				return c.class, plain.Line(string(line[:min(len(line), 300)]))
			}
		}
	}
	return "", ""
}

// tailOf returns the last lines of a file, 64 KiB at most.
func tailOf(file string) []byte {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	const size = 64 << 10
	if info, err := f.Stat(); err == nil && info.Size() > size {
		if _, err := f.Seek(-size, io.SeekEnd); err != nil {
			return nil
		}
	}
	data, err := io.ReadAll(io.LimitReader(f, size))
	if err != nil {
		return nil
	}
	return data
}

// fullDisk describes the first of some folders whose file system has no space left; empty if none.
func fullDisk(dirs ...string) string {
	for _, dir := range dirs {
		var st syscall.Statfs_t
		if err := syscall.Statfs(dir, &st); err == nil && st.Blocks > 0 && (st.Bavail == 0 || st.Files > 0 &&
			st.Ffree == 0) {
			return "the disk of " + dir + " is full"
		}
	}
	return ""
}

// kernelKills counts the processes of the machine that the kernel killed for lack of memory since it
// booted.
func kernelKills() int64 {
	text, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		if value, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			n, _ := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
			return n
		}
	}
	return 0
}

var signalNames = map[syscall.Signal]string{
	syscall.SIGHUP: "SIGHUP", syscall.SIGINT: "SIGINT", syscall.SIGQUIT: "SIGQUIT", syscall.SIGILL: "SIGILL",
	syscall.SIGABRT: "SIGABRT", syscall.SIGBUS: "SIGBUS", syscall.SIGFPE: "SIGFPE", syscall.SIGKILL: "SIGKILL",
	syscall.SIGSEGV: "SIGSEGV", syscall.SIGPIPE: "SIGPIPE", syscall.SIGTERM: "SIGTERM",
}

func signalName(s syscall.Signal) string {
	if name, ok := signalNames[s]; ok {
		return name
	}
	return "signal " + strconv.Itoa(int(s))
}

// maxCode is the largest archive of code, and maxArtifact the largest artifact that is copied: both
// are in memory meanwhile.
const (
	maxCode     = 512 << 20
	maxArtifact = 2 << 30
)

// codeStep unpacks the code of a job into the work folder.
func (b *bootstrap) codeStep(ctx context.Context) (string, error) {
	c := b.options.Host.Command
	if c.Code == "" {
		return "there is no code to copy", nil
	}
	prefix, key := path.Split(c.Code)
	store, err := b.options.Work(ctx, strings.TrimSuffix(prefix, "/"))
	if err != nil {
		return "", err
	}
	o, err := store.Get(ctx, key, maxCode)
	if err != nil {
		return "", fmt.Errorf("read the code of the job: %w", err)
	}
	sum := sha256.Sum256(o.Data)
	if want := strings.TrimSuffix(key, code.Suffix); hex.EncodeToString(sum[:]) != want {
		return "", fmt.Errorf("read the code of the job: its hash is not %s", want)
	}
	if err := code.Unpack(b.workDir, o.Data); err != nil {
		return "", fmt.Errorf("unpack the code of the job: %w", err)
	}
	return "", nil
}

// keepArtifacts copies the artifacts of a command that succeeded, and records its outcome then.
func (h *host) keepArtifacts(ctx context.Context, o session.Outcome) {
	c := h.options.Host.Command
	go func() {
		limited, cancel := context.WithTimeout(ctx, time.Duration(h.options.Host.SaveLimit))
		defer cancel()
		copied, err := copyArtifacts(limited, &h.options, expandHome(c.ArtifactsDir, h.options.Home),
			strings.TrimSuffix(c.Artifacts, "/"))
		switch {
		case err != nil:
			o.Class, o.Evidence = session.NoArtifacts, "its artifacts could not be kept: "+err.Error()
		case copied == 0:
			o.Class, o.Evidence = session.NoArtifacts, "exit code 0, and it left no file in "+c.ArtifactsDir
		default:
			o.Evidence += "; " + plain.Count(copied, "artifact") + " kept"
		}
		h.artifacts <- o
	}()
}

// copyArtifacts copies the files of a folder into a store and returns their number.
func copyArtifacts(ctx context.Context, options *Options, dir, to string) (copied int, err error) {
	store, err := options.Work(ctx, to)
	if err != nil {
		return 0, err
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Size() > maxArtifact {
			return fmt.Errorf("%s has %s, which is over %s", name, plain.Size(info.Size()),
				plain.Size(int64(maxArtifact)))
		}
		data, err := root.ReadFile(name)
		if err != nil {
			return err
		}
		copied++
		return putObject(ctx, store, name, data)
	})
	return copied, err
}

// putObject writes an object over any version of it.
func putObject(ctx context.Context, store checkpoint.Backend, key string, data []byte) error {
	err := store.Create(ctx, key, data)
	if !errors.Is(err, checkpoint.ErrExists) {
		return err
	}
	old, err := store.Get(ctx, key, maxArtifact)
	if err != nil || bytes.Equal(old.Data, data) {
		return err
	}
	_, err = store.Replace(ctx, key, data, old.Version)
	return err
}

// expandHome returns a folder of the machine: "~" is its user's home.
func expandHome(dir, home string) string {
	if rest, below := strings.CutPrefix(dir, "~"); below {
		return filepath.Join(home, rest)
	}
	return dir
}
