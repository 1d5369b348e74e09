// Command ghzanswers calls ModelInfer of the Open Inference Protocol by ghz, once for each message of a
// JSON file, and prints the text of each answer as a line. The log of ghz itself leaves out most of them.
//
//	ghzanswers PROTO DATA.json ADDRESS CALLS CONCURRENCY
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"github.com/bojand/ghz/runner"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ghzanswers:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 5 {
		return errors.New("give PROTO DATA.json ADDRESS CALLS CONCURRENCY")
	}
	calls, err := strconv.ParseUint(args[3], 10, 32)
	if err != nil {
		return err
	}
	concurrency, err := strconv.ParseUint(args[4], 10, 32)
	if err != nil {
		return err
	}
	out := &printer{to: bufio.NewWriter(os.Stdout)}
	report, err := runner.Run("inference.GRPCInferenceService.ModelInfer", args[2], runner.WithInsecure(true),
		runner.WithProtoFile(args[0], nil), runner.WithDataFromFile(args[1]), runner.WithTotalRequests(uint(calls)),
		runner.WithConcurrency(uint(concurrency)), runner.WithLogger(out))
	if err != nil {
		return err
	}
	if len(report.ErrorDist) > 0 {
		return fmt.Errorf("of %d calls failed, by error: %v", report.Count, report.ErrorDist)
	}
	return out.to.Flush()
}

// printer prints the answers of the log of ghz.
type printer struct {
	mu sync.Mutex
	to *bufio.Writer
}

// Debugw implements runner.Logger.
func (p *printer) Debugw(message string, pairs ...any) {
	if message != "Received response" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i] == "response" {
			fmt.Fprintln(p.to, pairs[i+1])
		}
	}
}

// The rest of runner.Logger.
func (*printer) Debug(...any)          {}
func (*printer) Debugf(string, ...any) {}
func (*printer) Error(...any)          {}
func (*printer) Errorf(string, ...any) {}
func (*printer) Errorw(string, ...any) {}
