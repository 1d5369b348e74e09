// Command gatewaybench compares the gateway with a model server alone, with a reverse proxy and
// with KServe's batcher, in one run on this machine. The model server is onnxruntime on one core.
// ghz asks by gRPC.
//
//	gatewaybench [-python PYTHON] [-time 4s] CURFEW
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var (
	python   = flag.String("python", "python3", "Python with onnxruntime, onnx and numpy")
	seconds  = flag.Duration("time", 2*time.Second, "time of each load")
	rows     = flag.Int("rows", 10_000, "rows of the comparison with direct answers")
	only     = flag.Bool("equal", false, "compare answers with direct ones and measure nothing")
	maxBatch = flag.Int("max-batch", 32, "largest batch of the gateway")
	strict   = flag.Bool("strict", false, "exit with 1 where a goal is missed")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gatewaybench:", err)
		os.Exit(1)
	}
}

// bench runs the servers as processes.
type bench struct {
	dir      string
	children []*exec.Cmd
	missed   int
	direct   float64 // requests per second of 64 clients without batches
}

// start starts a process and waits until it listens.
func (b *bench) start(address string, name string, args ...string) error {
	c := exec.Command(name, args...)
	log, err := os.Create(filepath.Join(b.dir, strings.ReplaceAll(address, ":", "-")+".log"))
	if err != nil {
		return err
	}
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		return err
	}
	b.children = append(b.children, c)
	for until := time.Now().Add(2 * time.Minute); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		if conn, err := net.Dial("tcp", address); err == nil {
			return conn.Close()
		}
	}
	return fmt.Errorf("%s does not listen at %s", name, address)
}

func freeAddress() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// goal prints whether a goal was reached.
func (b *bench) goal(met bool, format string, args ...any) {
	mark := "met   "
	if !met {
		mark = "MISSED"
		b.missed++
	}
	fmt.Printf("  %s %s\n", mark, fmt.Sprintf(format, args...))
}

const path = "/v1/models/mlp:predict"

func run() error {
	if flag.NArg() != 1 {
		return fmt.Errorf("name the binary of curfew")
	}
	dir, err := os.MkdirTemp("", "gatewaybench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{dir: dir}
	defer func() {
		for _, c := range b.children {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}()
	batcher := filepath.Join(dir, "kservebatcher")
	build := exec.Command("go", "build", "-o", batcher, ".")
	build.Dir = filepath.Join("test", "gatewaybench", "kserve")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build KServe's batcher: %w: %s", err, out)
	}
	server := freeAddress()
	_, port, _ := net.SplitHostPort(server)
	if err := b.start(server, "taskset", "-c", "0", *python, "test/gatewaybench/server.py", port,
		filepath.Join(dir, "mlp.onnx")); err != nil {
		return err
	}
	direct := "http://" + server
	if err := waitModel(direct + path); err != nil {
		return err
	}
	ours := freeAddress()
	if err := b.start(ours, flag.Arg(0), "gateway", "--upstream", direct, "--listen", ours,
		"--max-batch", strconv.Itoa(*maxBatch), "--price", "3.60", "--config", os.DevNull); err != nil {
		return err
	}
	proxy := freeAddress()
	if err := b.start(proxy, batcher, proxy, direct); err != nil {
		return err
	}
	if err := b.equal(direct, "http://"+ours); err != nil {
		return err
	}
	if *only {
		return b.result()
	}
	peak, bestURL := b.closed(direct, "http://"+proxy, "http://"+ours, batcher)
	b.open(peak, "http://"+ours, bestURL)
	if err := b.fit(direct, "http://"+ours, flag.Arg(0)); err != nil {
		return err
	}
	return b.result()
}

// result is an error where goals are missed that must be met.
func (b *bench) result() error {
	if b.missed > 0 && (*strict || *only) {
		return fmt.Errorf("%d goals missed", b.missed)
	}
	if b.missed > 0 {
		fmt.Printf("%d goals missed\n", b.missed)
	}
	return nil
}

func waitModel(url string) error {
	for until := time.Now().Add(2 * time.Minute); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		if status, _, err := send(context.Background(), url, bodies[0], 0); err == nil && status == http.StatusOK {
			return nil
		}
	}
	return fmt.Errorf("the model server does not answer")
}

// equal compares the responses of random rows through batches with direct ones, byte by byte.
func (b *bench) equal(direct, ours string) error {
	r := rand.New(rand.NewPCG(1, 1))
	all := make([][]byte, *rows)
	for i := range all {
		all[i] = rowBody(r)
	}
	want := make([]string, len(all))
	// Rows are sent directly in requests of one row.
	if err := each(4, len(all), func(i int) error {
		status, answer, err := send(context.Background(), direct+path, all[i], 0)
		want[i] = predictions(answer)
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("direct row %d: %d %w", i, status, err)
		}
		return nil
	}); err != nil {
		return err
	}
	var differ atomic.Int64
	if err := each(64, len(all), func(i int) error {
		status, answer, err := send(context.Background(), ours+path, all[i], 0)
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("row %d: %d %w", i, status, err)
		}
		if predictions(answer) != want[i] {
			differ.Add(1)
		}
		return nil
	}); err != nil {
		return err
	}
	fmt.Printf("%d random rows through batches: %d differ from direct answers\n", *rows, differ.Load())
	b.goal(differ.Load() == 0, "bit for bit equal")
	return b.equalGRPC(ours, all, want)
}

// predictions returns the text of the predictions, without space.
func predictions(answer []byte) string {
	var doc struct {
		Predictions json.RawMessage `json:"predictions"`
	}
	if json.Unmarshal(answer, &doc) != nil {
		return "not JSON: " + string(answer)
	}
	return strings.ReplaceAll(string(doc.Predictions), " ", "")
}

// each calls f for 0 to n-1 from several goroutines.
func each(workers, n int, f func(int) error) error {
	var next atomic.Int64
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && errs[w] == nil; i = int(next.Add(1)) - 1 {
				errs[w] = f(i)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// rounds is the number of repetitions of each load. Servers alternate, so that changes of the
// machine affect all of them.
const rounds = 3

// peer is a server under load with its results of each round.
type peer struct {
	name, url string
	one, many []result
}

// middle returns the round with the median rate.
func middle(all []result) result {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b result) int { return cmp.Compare(a.rate(), b.rate()) })
	return sorted[len(sorted)/2]
}

// middleTail returns the round with the median p99.
func middleTail(all []result) result {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b result) int {
		return cmp.Compare(a.at(0.99), b.at(0.99))
	})
	return sorted[len(sorted)/2]
}

// closed compares closed loops of 1 and 64 clients. It returns our peak rate and the URL of
// KServe's best configuration.
func (b *bench) closed(direct, proxy, ours, program string) (peak float64, bestURL string) {
	peers := []*peer{{name: "direct", url: direct}, {name: "ReverseProxy", url: proxy}}
	for _, size := range []string{"16", "32"} {
		for _, latency := range []string{"1", "5", "20"} {
			at := freeAddress()
			if err := b.start(at, program, at, direct, size, latency); err != nil {
				fmt.Println("  KServe:", err)
				continue
			}
			peers = append(peers, &peer{name: "KServe batcher " + size + " / " + latency + " ms", url: "http://" + at})
		}
	}
	mine := &peer{name: "curfew gateway", url: ours}
	peers = append(peers, mine)
	for range rounds {
		for _, p := range peers {
			closedLoop(p.url+path, 8, time.Second) // warms up, and teaches the gateway batch times
			p.one = append(p.one, closedLoop(p.url+path, 1, *seconds))
			p.many = append(p.many, closedLoop(p.url+path, 64, *seconds))
		}
	}
	fmt.Printf("\nclosed loop, medians of %d rounds of %s    1 client: req/s, p50     64 clients: req/s, p50, p99\n",
		rounds,
		*seconds)
	best := 0.0
	for _, p := range peers {
		one, many := middle(p.one), middle(p.many)
		fmt.Printf("  %-32s %7.0f %8.2f ms     %7.0f %8.2f ms %8.2f ms\n", p.name, one.rate(), millis(one.at(0.5)),
			many.rate(), millis(many.at(0.5)), millis(many.at(0.99)))
		if strings.HasPrefix(p.name, "KServe") && many.rate() > best {
			best, bestURL = many.rate(), p.url
		}
	}
	one, many, alone := middle(mine.one), middle(mine.many), middle(peers[1].one)
	b.goal(many.rate() >= best, "64 clients: %.0f req/s, KServe's best %.0f", many.rate(), best)
	b.direct = middle(peers[0].many).rate()
	times := many.rate() / b.direct
	b.goal(times >= 8, "64 clients: %.1f times direct (goal 8)", times)
	b.goal(one.at(0.5) <= alone.at(0.5)*115/100, "1 client: median %.2f times that of ReverseProxy (goal 1.15)",
		float64(one.at(0.5))/float64(alone.at(0.5)))
	return many.rate(), bestURL
}

// open compares open loops, which include waiting times.
func (b *bench) open(peak float64, ours, kserve string) {
	fmt.Printf("\nopen loop, Poisson arrivals, medians of rounds, peak %.0f req/s: p50 and p99 of curfew and "+
		"KServe's best\n", peak)
	for _, share := range []float64{0.3, 0.6, 0.9} {
		var all, others []result
		for range rounds {
			all = append(all, openLoop(ours+path, share*peak, *seconds, 0))
			others = append(others, openLoop(kserve+path, share*peak, *seconds, 0))
		}
		a, k := middleTail(all), middleTail(others)
		fmt.Printf("  %.1f of peak                            %8.2f %8.2f ms     %8.2f %8.2f ms\n", share,
			millis(a.at(0.5)), millis(a.at(0.99)), millis(k.at(0.5)), millis(k.at(0.99)))
		b.goal(a.at(0.99) <= k.at(0.99), "%.1f of peak: p99 is %.2f ms, KServe's best %.2f ms", share,
			millis(a.at(0.99)), millis(k.at(0.99)))
	}
	const deadline = 200 * time.Millisecond
	var once, double []result
	for range rounds {
		once = append(once, openLoop(ours+path, peak, *seconds, deadline))
		double = append(double, openLoop(ours+path, 2*peak, *seconds, deadline))
	}
	at, twice := middle(once), middle(double)
	b.goal(twice.rate() >= 0.9*at.rate(),
		"2.0 of peak, deadlines of %s: %.0f answers/s in time, %.0f at peak (0.9)", deadline,
		twice.rate(), at.rate())
}

// fit compares the measured line with an offline sweep, and with the result of plan capacity.
func (b *bench) fit(direct, ours, curfew string) error {
	fmt.Println("\nfit of batch times")
	doc, err := readProfile(ours, curfew)
	if err != nil {
		return err
	}
	var errs []float64
	for _, n := range []int{1, 2, 4, 8, 16, 24, 32, 48, 64} {
		took := sweep(direct+path, n)
		want := doc.Fit.A*float64(n) + doc.Fit.B
		errs = append(errs, math.Abs(want-millis(took))/millis(took))
		fmt.Printf("  %2d rows: %6.2f ms offline, %6.2f ms by the fit %s\n", n, millis(took), want, doc.Profile)
	}
	b.goal(median(errs) <= 0.10, "median error %.1f%% (10%%)", 100*median(errs))
	// One batch is served while the other half of the clients waits.
	bound := 64 * 1000 / (64*doc.Fit.A + 2*doc.Fit.B)
	fmt.Printf("  64 clients in two batches: the fit allows %.0f req/s, %.1f times direct\n", bound, bound/b.direct)
	most := float64(*maxBatch) / (doc.Fit.A*float64(*maxBatch) + doc.Fit.B) * 1000
	for _, share := range []float64{0.3, 0.6, 0.8} {
		if err := b.plan(ours, curfew, share, share*most); err != nil {
			return err
		}
	}
	return nil
}

// profile is the fitted line of the gateway.
type profile struct {
	Profile string `json:"profile"`
	Fit     struct {
		A float64 `json:"a_ms"`
		B float64 `json:"b_ms"`
	} `json:"fit"`
}

func readProfile(ours, curfew string) (profile, error) {
	var doc profile
	out, err := output(curfew, "gateway", "profile", "--gateway", ours, "--config", os.DevNull, "-o", "json")
	if err != nil {
		return doc, fmt.Errorf("read the profile: %w", err)
	}
	return doc, json.Unmarshal(out, &doc)
}

// plan compares the mean latency of a load with the plan for it. The line is that of a load of the same
// rate before: a server is faster between closed loops than between arrivals at random.
func (b *bench) plan(ours, curfew string, share, rate float64) error {
	openLoop(ours+path, rate, *seconds, 0)
	doc, err := readProfile(ours, curfew)
	if err != nil {
		return err
	}
	out, err := output(curfew, "plan", "capacity", "--config", os.DevNull, "--qps", fmt.Sprint(rate),
		"--profile", doc.Profile, "--max-batch", strconv.Itoa(*maxBatch), "--replicas", "1", "-o", "json")
	if err != nil {
		return fmt.Errorf("plan capacity: %w", err)
	}
	var plan struct {
		Mean float64 `json:"mean_latency_ms"`
	}
	if err := json.Unmarshal(out, &plan); err != nil {
		return err
	}
	got := openLoop(ours+path, rate, 2**seconds, 0)
	off := math.Abs(millis(got.mean())-plan.Mean) / plan.Mean
	b.goal(off <= 0.15,
		"%.1f of capacity: mean %.2f ms, sent %.2f ms late, plan capacity says %.2f ms by %s (%.0f%%, 15%%)",
		share, millis(got.mean()), millis(got.lateness()), plan.Mean, doc.Profile, 100*off)
	return nil
}

// output runs a command and returns what it prints, or an error with what it prints as one.
func output(name string, args ...string) ([]byte, error) {
	var stderr strings.Builder
	c := exec.Command(name, args...)
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}

// sweep returns the median time of a batch of n rows, sent directly.
func sweep(url string, n int) time.Duration {
	r := rand.New(rand.NewPCG(uint64(n), 2))
	var parts []string
	for range n {
		one := rowBody(r)
		parts = append(parts, string(one[len(`{"instances":[`):len(one)-len(`]}`)]))
	}
	body := []byte(`{"instances":[` + strings.Join(parts, ",") + `]}`)
	var all []float64
	for range 60 {
		at := time.Now()
		if status, _, err := send(context.Background(), url, body, 0); err == nil && status == http.StatusOK {
			all = append(all, float64(time.Since(at)))
		}
	}
	return time.Duration(median(all))
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
