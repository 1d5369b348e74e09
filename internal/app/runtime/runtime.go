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

// Host is the machine that a process runs on.
type Host struct {
	// Stdin is the standard input of a command; nil is empty.
	Stdin io.Reader
	Now   func() time.Time
	// Uptime names the boot of the machine and returns the time since then by a monotonic clock;
	// the name is empty if the system does not provide it.
	Uptime func() (boot string, up time.Duration)
	// FileTime returns the time by the clock of a directory's file system.
	FileTime func(dir string) (time.Time, error)
	// Lookup reads an environment variable.
	Lookup func(string) (string, bool)
	// Dir is the working directory.
	Dir string
	// ConfigDir and DataDir are the user's own; empty without a home folder.
	ConfigDir, DataDir string
	// WitnessDir is the default location of the state's witness. If it is empty and none is
	// configured, nothing acts by a state.
	WitnessDir string
	// Log receives warnings, one per line.
	Log io.Writer
}

// Process is the context of a process. Its requests may run concurrently once its fields are set.
type Process struct {
	Host
	// ConfigFlag is the configuration file that the user names; empty searches for one.
	ConfigFlag string
	// DataFlag and DatabaseFlag override the configured location of the state.
	DataFlag, DatabaseFlag string
	// Configs caches the configuration that was read last.
	Configs *config.Cache
	// InUse holds the configuration in force of a service, regardless of later changes to the file;
	// nil, or holding nil, uses the file.
	InUse *atomic.Pointer[config.Config]
	// Series caches the series of metrics servers.
	Series *prom.Series
	// Simulated is the account that a demonstration serves; nil for real accounts.
	Simulated *SimulatedAccount
	// Storage opens the state for a request.
	Storage Storage
	// Troubles lists what is wrong with this process if it is a service; nil otherwise.
	Troubles func() []view.Trouble
	// Fleets returns the serving fleets that this process decides about; nil: it is no service.
	Fleets func() view.ServingFleets
}

// SimulatedAccount is the simulated account that a demonstration serves.
type SimulatedAccount struct {
	// Actions acts on the account.
	Actions action.Cloud
	// Setting returns the setting of a round of the account, with its ladder and without policies.
	Setting func(cfg config.Config) (round.Setting, error)
	// Launcher launches the machines of sessions and jobs in the account.
	Launcher session.Launcher
}

// NewProcess returns a process of a host whose requests open the configured state themselves. If
// Uptime or FileTime are nil, the boot is unknown, or files have the time of Now.
func NewProcess(h Host) *Process {
	if h.Uptime == nil {
		h.Uptime = func() (string, time.Duration) { return "", 0 }
	}
	if h.FileTime == nil {
		h.FileTime = func(string) (time.Time, error) { return h.Now(), nil }
	}
	return &Process{Host: h, Configs: &config.Cache{}, Series: &prom.Series{}, Storage: OwnStorage{}}
}

// Request returns a request of the process's user without progress display.
func (p *Process) Request() *Request {
	return &Request{Process: p, Progress: noProgress, reviewed: map[string]bool{}}
}

// Request is the context of one call of an operation. It is not safe for concurrent use.
type Request struct {
	*Process
	// Caller made the request.
	Caller Caller
	// Progress starts a progress display for something that takes time.
	Progress func(what string) Bar

	// reviewed holds the approval requests decided by a review that this request read.
	reviewed map[string]bool
	// prices is the price overlay of the shared settings.
	prices priceOverlay
	// warnedPrices is true if refused prices were reported.
	warnedPrices bool
	// lenient caches the result of LenientConfig, so that it reports mistakes once.
	lenient *config.Config
	// closers are called by Close.
	closers []func() error
}

// Fresh returns another request of the same caller without cached values.
func (req *Request) Fresh() *Request {
	one := req.Request()
	one.Caller, one.Progress = req.Caller, req.Progress
	return one
}

// Caller is the source of a request: the user of this process, which is the zero value, or a person
// whom a service has identified.
type Caller struct {
	person approval.Person
	served bool
}

// ServedCaller returns the caller that a service has identified as a person.
func ServedCaller(p approval.Person) Caller { return Caller{person: p, served: true} }

// Served returns the person whom a service has identified, or false for the user of this process.
func (c Caller) Served() (approval.Person, bool) { return c.person, c.served }

// priceOverlay is a text of prices that replaces the user's own.
type priceOverlay struct {
	text string
	set  bool
}

// Bar displays progress. Report may be called from any goroutine.
type Bar interface {
	Report(round.Progress)
	Finish()
}

type noBar struct{}

func (noBar) Report(round.Progress) {}
func (noBar) Finish()               {}

func noProgress(string) Bar { return noBar{} }

// CutOff is the error of a round that ended early, with what it had done by then.
type CutOff struct {
	error
	lines []action.Line
}

// CutShort returns the error of a round that ended early, with what it had done by then.
func CutShort(err error, lines []action.Line) error { return &CutOff{err, lines} }

// Unwrap returns the cause.
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

// OnClose registers a function for Close to call.
func (req *Request) OnClose(f func() error) { req.closers = append(req.closers, f) }

// Close releases what the request opened for itself.
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
	Failed  Class = iota // environment: nothing could be read, or a state is missing
	Usage                // input from the user: flags, arguments, files
	Denied               // a rule, or a missing permission
	Held                 // waits for an approval
	Partial              // something could not be read, recorded or acted on
)

// Error is an error with its stable name in JSON ("no_credentials") and the next step. Err is nil
// if the output has already explained it.
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

// Invalid returns an error of the class Usage about flags or arguments.
func Invalid(format string, a ...any) error {
	return &Error{Class: Usage, Code: "usage", Err: fmt.Errorf(format, a...)}
}

// InvalidFile returns an error of the class Usage about a file.
func InvalidFile(err error) error { return &Error{Class: Usage, Code: "invalid_file", Err: err} }

// Config returns the configuration in force of a service, or else the result of ReadConfig.
func (process *Process) Config() (config.Config, error) {
	if process.InUse != nil {
		if c := process.InUse.Load(); c != nil {
			return c.Clone(), nil
		}
	}
	return process.ReadConfig()
}

// LenientConfig is Config for commands that must also work if the file has mistakes: it uses what
// can be read, and logs what is left out. It fails if the file does not determine the location of
// the state.
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

// placed returns a configuration with the state at the location given by flags, and refuses a
// folder that another user could change.
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

// Path returns a file's path relative to the working directory.
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

// Read returns a whole YAML file, or a JSON file of at most jsonLimit bytes; the name "-" reads in.
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

// SetReviewed records that this request read the review that decided an approval request.
func (req *Request) SetReviewed(id string) { req.reviewed[id] = true }

// Reviewed reports whether this request read the review that decided an approval request.
func (req *Request) Reviewed(id string) bool { return req.reviewed[id] }

// Logger returns the log of a service.
func (req *Request) Logger(asJSON bool) *slog.Logger { return NewLogger(req.Log, asJSON) }
