package aws

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// ErrNoAnswer is returned if the machine's shell did not respond in time.
var ErrNoAnswer = errors.New("the shell of the machine did not answer")

// Limits of typed input. Terminal lines are at most 4,095 bytes.
const (
	typedLine   = 1024
	beginWithin = 90 * time.Second
	// quiet is the pause after which a shell's greeting counts as complete.
	quiet = 500 * time.Millisecond
)

// Type runs a sh script by typing it into a shell connection, and returns its exit code. Its
// output, of both streams, is written to out; it has no input. The connection is a terminal, so
// output before the script is dropped, and the end with the exit code is marked by a random word,
// because the plugin's exit code is meaningless. It returns [ErrNoAnswer] if the script did not
// start.
func (c *Connector) Type(ctx context.Context, p Plugin, o *Opened, a Attachment, script string, out io.Writer) (int,
	error) {
	word := make([]byte, 12)
	if _, err := rand.Read(word); err != nil {
		return 0, err
	}
	t := newTyped("curfew-"+hex.EncodeToString(word), out)
	in, keys, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer in.Close()
	typing, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	a.In, a.Out, a.Terminal = in, t, false
	if a.Err == nil {
		a.Err = io.Discard
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Attach(typing, p, o, a) }()
	typed := make(chan error, 1)
	// The plugin ends with its input, so the input stays open.
	context.AfterFunc(typing, func() { keys.Close() })
	go func() {
		err := t.feed(typing, keys, script)
		if err != nil {
			stop(err)
		}
		typed <- err
	}()
	select {
	case err = <-ended:
	case <-t.over:
		// The shell has ended with the script; the plugin notices or is told.
		select {
		case <-ended: //nolint:errcheck // the script has told how it ended
		case <-time.After(pluginPatience):
			stop(nil)
			<-ended //nolint:errcheck // as above
		}
	}
	cause := context.Cause(typing)
	stop(nil)
	<-typed //nolint:errcheck // an error of typing shows in the result
	code, done := t.result()
	switch {
	case done:
		return code, t.failed()
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case cause != nil && !errors.Is(cause, context.Canceled):
		return 0, cause
	case err == nil:
		err = fmt.Errorf("%w: the connection ended before the command did", ErrRefused)
	}
	return 0, err
}

// typed parses the output of a terminal: noise, the start mark, the script's output, the end mark.
type typed struct {
	word  string
	out   io.Writer
	begun chan struct{}
	over  chan struct{}
	heard chan struct{} // signals new output; at most one is pending

	mu     sync.Mutex
	buffer []byte
	stage  int // 0 noise, 1 output, 2 the exit code, 3 done
	code   int
	err    error
}

func newTyped(word string, out io.Writer) *typed {
	return &typed{
		word: word, out: out, begun: make(chan struct{}), over: make(chan struct{}), heard: make(chan struct{}, 1),
	}
}

// begin returns the first line to type: it replaces the shell by one that reads the rest from the
// terminal without echo. Its echo does not contain the words that it prints.
func (t *typed) begin() string {
	return ` exec sh -c 'stty -echo -opost 2>/dev/null; printf "\n%s%s\n" ` + t.word +
		` -begin; c=; while IFS= read -r l; do case $l in .) break;; esac; c=$c$l; done; ` +
		`sh -c "$(printf %s "$c" | base64 -d)" </dev/null; printf "%s%s:%d\n" ` + t.word + ` -end $?'` + "\n"
}

// feed types the first line once the shell is ready, and then the script.
func (t *typed) feed(ctx context.Context, keys io.Writer, script string) error {
	// A shell greets or prompts, and then waits.
	limit := time.After(beginWithin)
	heard := false
	for waiting := true; waiting; {
		pause := time.After(quiet)
		if !heard {
			pause = time.After(10 * quiet)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.heard:
			heard = true
		case <-pause:
			waiting = false
		}
	}
	if _, err := io.WriteString(keys, t.begin()); err != nil {
		return fmt.Errorf("%w: %w", ErrNoAnswer, err)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-limit:
		return fmt.Errorf("%w in %s", ErrNoAnswer, beginWithin)
	case <-t.begun:
	}
	var lines strings.Builder
	for text := base64.StdEncoding.EncodeToString([]byte(script)); text != ""; {
		n := min(typedLine, len(text))
		lines.WriteString(text[:n] + "\n")
		text = text[n:]
	}
	lines.WriteString(".\n")
	if _, err := io.WriteString(keys, lines.String()); err != nil {
		return fmt.Errorf("type a command: %w", err)
	}
	return nil
}

// Write implements io.Writer.
func (t *typed) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case t.heard <- struct{}{}:
	default:
	}
	t.buffer = append(t.buffer, b...)
	if t.stage == 0 {
		t.noise()
	}
	if t.stage == 1 {
		t.output()
	}
	if t.stage == 2 {
		t.exit()
	}
	return len(b), nil
}

// noise drops the output before the script.
func (t *typed) noise() {
	mark := []byte(t.word + "-begin")
	at := bytes.Index(t.buffer, mark)
	if at < 0 {
		t.buffer = t.buffer[max(0, len(t.buffer)-len(mark)):]
		return
	}
	end := bytes.IndexByte(t.buffer[at:], '\n')
	if end < 0 {
		return
	}
	t.buffer = t.buffer[at+end+1:]
	t.stage = 1
	close(t.begun)
}

// output passes everything but the end mark on at once, so that lines appear when they are written.
func (t *typed) output() {
	mark := []byte(t.word + "-end:")
	at := bytes.Index(t.buffer, mark)
	if at < 0 {
		at = len(t.buffer)
		for n := min(len(mark)-1, len(t.buffer)); n > 0; n-- { // the mark may have begun
			if bytes.HasSuffix(t.buffer, mark[:n]) {
				at -= n
				break
			}
		}
		t.pass(at)
		return
	}
	t.pass(at)
	t.buffer = t.buffer[len(mark):]
	t.stage = 2
}

// pass passes on n bytes.
func (t *typed) pass(n int) {
	if n > 0 && t.err == nil {
		_, t.err = t.out.Write(t.buffer[:n])
	}
	t.buffer = t.buffer[n:]
}

// exit reads the exit code.
func (t *typed) exit() {
	line, _, whole := bytes.Cut(t.buffer, []byte("\n"))
	if !whole {
		return
	}
	t.stage = 3
	if _, err := fmt.Sscanf(strings.TrimSpace(string(line)), "%d", &t.code); err != nil {
		t.code = 1
	}
	close(t.over)
}

func (t *typed) result() (int, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.code, t.stage == 3
}

func (t *typed) failed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}
