package runtime

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/metrics/prom"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/trust"
	"github.com/curfew-dev/curfew/internal/view"
)

// Host is the interface of a process to its machine.
type Host struct {
	// Stdin is the standard input of a command; nil has none.
	Stdin io.Reader
	Now   func() time.Time
	// Uptime names the boot of the machine and returns the time since then, by a clock that
	// only goes forward; an empty name where the system does not tell.
	Uptime func() (boot string, up time.Duration)
	// FileTime is the clock of the file system that a directory is on.
	FileTime func(dir string) (time.Time, error)
	// Lookup reads the environment.
	Lookup func(string) (string, bool)
	// Dir is the working directory.
	Dir string
	// ConfigDir and DataDir are the user's own; empty where there is no home.
	ConfigDir, DataDir string
	// WitnessDir is where the witness of the state is unless it is configured; empty: nowhere,
	// so that nothing acts by a state.
	WitnessDir string
	// Log takes warnings, a line each.
	Log io.Writer
}

// Process is the context of a process. Its requests may run concurrently once nothing sets its
// fields any more.
type Process struct {
	Host
	// ConfigFlag is the configuration file that the user names; empty: the one that is found.
	ConfigFlag string
	// DataFlag and DatabaseFlag are where the user wants the state; empty: as configured.
	DataFlag, DatabaseFlag string
	// Configs remembers the configuration that was read last.
	Configs *config.Cache
	// InUse holds the configuration in force of a service, whatever the file has become since;
	// nil, or holding nil: the file counts.
	InUse *atomic.Pointer[config.Config]
	// Series remembers which series metrics servers have.
	Series *prom.Series
	// Simulated is the account that a demonstration serves; nil: accounts are real.
	Simulated *SimulatedAccount
	// Storage opens the state for a request.
	Storage Storage
	// Troubles lists what is wrong with the service that this process is; nil: it is none.
	Troubles func() []view.Trouble
	// Fleets returns the serving fleets that this process decides about; nil: it is no service.
	Fleets func() view.ServingFleets
}

// SimulatedAccount is a simulated account that is served.
type SimulatedAccount struct {
	// Actions acts on the account.
	Actions action.Cloud
	// Setting returns the setting of a round of the account, with its ladder and without policies.
	Setting func(cfg config.Config) (round.Setting, error)
	// Launcher launches the machines of sessions and jobs in the account.
	Launcher session.Launcher
}

// NewProcess returns a process of a host whose requests open the configured state themselves.
// Uptime and FileTime may be nil: no boot is known then, and files have the time of Now.
func NewProcess(h Host) *Process {
	if h.Uptime == nil {
		h.Uptime = func() (string, time.Duration) { return "", 0 }
	}
	if h.FileTime == nil {
		h.FileTime = func(string) (time.Time, error) { return h.Now(), nil }
	}
	return &Process{Host: h, Configs: &config.Cache{}, Series: &prom.Series{}, Storage: OwnStorage{}}
}

// Request returns a request of the user of the process that shows no progress.
func (p *Process) Request() *Request {
	return &Request{Process: p, Progress: noProgress, reviewed: map[string]bool{}}
}

// Request is the context of one call of an operation. It is not safe for concurrent use.
type Request struct {
	*Process
	// Caller makes the request.
	Caller Caller
	// Progress begins to show how far something is that takes time.
	Progress func(what string) Bar

	// reviewed are the approval requests that a review decided which this request read.
	reviewed map[string]bool
	// prices are the price overlay of the shared settings.
	prices priceOverlay
	// warnedPrices is true if refused prices were reported.
	warnedPrices bool
	// lenient is the reading of a file with mistakes by LenientConfig, which names them once.
	lenient *config.Config
	// closers are called by Close.
	closers []func() error
}

// Fresh returns another request of the same caller, with nothing that this one remembers.
func (req *Request) Fresh() *Request {
	one := req.Request()
	one.Caller, one.Progress = req.Caller, req.Progress
	return one
}

// Caller makes a request: the user of this process, which is the zero value, or a person
// whom a service has identified.
type Caller struct {
	person approval.Person
	served bool
}

// ServedCaller returns the caller that a service has identified as a person.
func ServedCaller(p approval.Person) Caller { return Caller{person: p, served: true} }

// Served returns the person whom a service has identified; false: the user of this process.
func (c Caller) Served() (approval.Person, bool) { return c.person, c.served }

// priceOverlay is a text of prices that takes the place of the user's own.
type priceOverlay struct {
	text string
	set  bool
}

// Bar shows how far something is. Report is called from any goroutine.
type Bar interface {
	Report(round.Progress)
	Finish()
}

type noBar struct{}

func (noBar) Report(round.Progress) {}
func (noBar) Finish()               {}

func noProgress(string) Bar { return noBar{} }

// CutOff is a round that ended early, with what it had done by then.
type CutOff struct {
	error
	lines []action.Line
}

// CutShort is an error that ended a round, with what the round had done by then.
func CutShort(err error, lines []action.Line) error { return &CutOff{err, lines} }

// Unwrap returns why it ended.
func (c *CutOff) Unwrap() error { return c.error }

// Done lists the calls and warnings that were sent, confirmed or not.
func (c *CutOff) Done() string {
	var said []string
	for _, l := range c.lines {
		switch l.Result {
		case action.ResultActed, action.ResultConfirmed, action.ResultFailed, action.ResultWarned:
			said = append(said, fmt.Sprintf("%s %s: %s", l.Verb, l.Resource.ID, l.Result))
		}
	}
	if len(said) == 0 {
		return "nothing was sent or changed"
	}
	return "done before: " + strings.Join(said, ", ") + "; `curfew audit` has it all"
}

// OnClose lets Close call a function.
func (req *Request) OnClose(f func() error) { req.closers = append(req.closers, f) }

// Close ends what the request made for itself.
func (req *Request) Close() error {
	var errs []error
	for _, end := range req.closers {
		errs = append(errs, end())
	}
	req.closers = nil
	return errors.Join(errs...)
}

// Class attributes an [Error] to its cause.
type Class int

// The classes of errors.
const (
	Failed  Class = iota // the outside: nothing could be read, or a state is missing
	Usage                // what the user gave: flags, arguments, files
	Denied               // a rule, or a permission that is missing
	Held                 // it waits for an approval
	Partial              // some of it could not be read, recorded or acted on
)

// Error is an error with its stable name in JSON ("no_credentials") and what to do about
// it. Err is nil where what was shown says it already.
type Error struct {
	Class Class
	Code  string
	Err   error
	Hint  string
}

// Error implements error.
func (e *Error) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap returns the error itself.
func (e *Error) Unwrap() error { return e.Err }

// Invalid is an error of the class Usage about flags or arguments.
func Invalid(format string, a ...any) error {
	return &Error{Class: Usage, Code: "usage", Err: fmt.Errorf(format, a...)}
}

// InvalidFile is an error of the class Usage about a file.
func InvalidFile(err error) error { return &Error{Class: Usage, Code: "invalid_file", Err: err} }

// Config returns the configuration that counts: the one that a service has in force, or else what
// ReadConfig reads.
func (process *Process) Config() (config.Config, error) {
	if process.InUse != nil {
		if c := process.InUse.Load(); c != nil {
			return c.Clone(), nil
		}
	}
	return process.ReadConfig()
}

// LenientConfig is Config for what has to work where the file has mistakes as well: what can be
// read of it counts, and the log names what is left out. It fails where the file does not tell
// which state is meant.
func (req *Request) LenientConfig() (config.Config, error) {
	c, err := req.Config()
	if err == nil {
		return c, nil
	}
	if req.lenient != nil {
		return req.lenient.Clone(), nil
	}
	path, found := req.Path(req.ConfigFlag), req.ConfigFlag == ""
	if found {
		path = config.Find(req.Dir, req.ConfigDir)
	}
	lenient, ignored, failed := config.LoadLenient(path, found, req.Lookup)
	if failed != nil {
		return c, err
	}
	if lenient, failed = req.placed(lenient); failed != nil {
		return c, failed
	}
	plain.Fprintf(req.Log, "curfew: %s; it is read without %s\n", plain.Line(err.Error()), strings.Join(ignored, ", "))
	req.lenient = &lenient
	return lenient.Clone(), nil
}

// ReadConfig reads the configuration that the user names or that is found.
func (process *Process) ReadConfig() (config.Config, error) {
	var c config.Config
	var err error
	hint := "docs/configuration.md lists every key"
	if process.ConfigFlag != "" {
		c, err = process.Configs.Load(process.Path(process.ConfigFlag), process.Lookup)
	} else {
		path := config.Find(process.Dir, process.ConfigDir)
		if c, err = process.Configs.LoadFound(path, process.Lookup); err != nil && trust.Path(path) != nil {
			hint = "read it, then give --config " + plain.Shell(path) + " to use it, or `chmod go-w` it if it is yours"
		}
	}
	if err != nil {
		return config.Config{}, &Error{Class: Usage, Code: "invalid_file", Err: err, Hint: hint}
	}
	return process.placed(c)
}

// placed returns a configuration with the state where flags want it, and refuses a folder that
// another user could change.
func (process *Process) placed(c config.Config) (config.Config, error) {
	if process.DataFlag != "" {
		c.DataDir = process.Path(process.DataFlag)
	}
	if c.DataDir == "" {
		c.DataDir = process.DataDir
	}
	if process.DatabaseFlag != "" {
		c.DatabaseURL = process.DatabaseFlag
	}
	if err := config.TrustState(c.DataDir, c.DataVolume); err != nil {
		return config.Config{}, &Error{
			Code: "untrusted_state", Err: fmt.Errorf("the state %s is not used: %w", c.DataDir, err),
			Hint: "`chmod go-w` your directories, or give a --data-dir that only you and root can write or rename"}
	}
	return c, nil
}

// Path returns a file's path as seen from the working directory.
func (process *Process) Path(p string) string {
	if filepath.IsAbs(p) {
		return p
	}
	if rel := filepath.Join(process.Dir, p); process.Dir != "" {
		if wd, err := os.Getwd(); err != nil || wd != process.Dir {
			return rel
		}
	}
	return p
}

// Read returns a YAML file as a whole, or a JSON file of at most jsonLimit bytes; the name "-"
// reads in.
func (process *Process) Read(name string, in io.Reader, jsonLimit int64) ([]byte, error) {
	if name != "-" {
		file, err := config.Open(process.Path(name))
		if err != nil {
			return nil, InvalidFile(fmt.Errorf("read %s: %w", name, Cause(err)))
		}
		defer file.Close()
		in = file
	}
	head, limit := bufio.NewReader(in), int64(document.MaxBytes)
	if first, _ := head.Peek(head.Size()); bytes.HasPrefix(bytes.TrimSpace(first), []byte("{")) {
		limit = jsonLimit
	}
	src, err := document.Read(name, head, limit)
	if err != nil {
		return nil, InvalidFile(err)
	}
	return src, nil
}

// SetReviewed remembers that this request read the review that decided an approval request.
func (req *Request) SetReviewed(id string) { req.reviewed[id] = true }

// Reviewed reports whether this request read the review that decided an approval request.
func (req *Request) Reviewed(id string) bool { return req.reviewed[id] }

// Logger is the log of a service.
func (req *Request) Logger(asJSON bool) *slog.Logger { return NewLogger(req.Log, asJSON) }
