// Command sessionbench measures sessions of a binary of curfew: how long `curfew up` on this
// machine takes until the session is ready, and how many API calls and seconds a session on AWS
// takes until its machines are launched and until nothing of it is left, next to one
// RunInstances and one TerminateInstances, which is what `aws ec2 run-instances` and
// `terminate-instances` call. AWS is a stand-in on this machine; its calls are counted by a
// proxy before it.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/test/sandbox"
	"github.com/curfew-dev/curfew/test/versitygw"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sessionbench:", err)
		os.Exit(1)
	}
}

const (
	region      = "us-east-1"
	machineType = "g6.xlarge"
	// least is the limit for the p95 of a start on this machine.
	least = 3 * time.Second
	// patient is the maximum duration of a session.
	patient = 2 * time.Minute
)

// bench is a running benchmark.
type bench struct {
	binary, dir string
	env         []string
	out         io.Writer
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	f := flag.NewFlagSet("sessionbench", flag.ContinueOnError)
	runs := f.Int("runs", 20, "sessions on this machine")
	strict := f.Bool("strict", false, "fail where the p95 is not under "+least.String())
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 1 || *runs < 1 {
		return errors.New("name one binary of curfew")
	}
	binary, err := filepath.Abs(f.Arg(0))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sessionbench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{binary: binary, dir: dir, out: out}
	p95, err := b.local(ctx, *runs)
	if err != nil {
		return err
	}
	if err := b.cloud(ctx); err != nil {
		return err
	}
	if *strict && p95 >= least {
		return fmt.Errorf("the p95 of a start is %s, not under %s", p95.Round(time.Millisecond), least)
	}
	return nil
}

// curfew runs a command in a folder.
func (b *bench) curfew(ctx context.Context, dir string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, b.binary, args...)
	var out, errs bytes.Buffer
	c.Dir, c.Stdout, c.Stderr, c.WaitDelay = dir, &out, &errs, time.Second
	c.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "XDG_STATE_HOME=" + filepath.Join(dir, "state"),
	},
		b.env...)
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("curfew %s: %w\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String(), nil
}

// local measures `curfew up demo --cloud local` with a new state in each run.
func (b *bench) local(ctx context.Context, runs int) (p95 time.Duration, err error) {
	var took []time.Duration
	for i := range runs {
		dir := filepath.Join(b.dir, fmt.Sprint(i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return 0, err
		}
		text := "identity: ana\nrates: {source: bench, as_of: 2026-11-01, vcpu_hour: \"0.04\", memory_gib_hour: " +
			"\"0.005\"}\n"
		if err := os.WriteFile(filepath.Join(dir, "curfew.yaml"), []byte(text), 0o600); err != nil {
			return 0, err
		}
		began := time.Now()
		if _, err := b.curfew(ctx, dir, "up", "demo", "--cloud", "local", "-q"); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
		if _, err := b.curfew(ctx, dir, "down", "demo", "--discard", "-q"); err != nil {
			return 0, err
		}
	}
	slices.Sort(took)
	p50, p95 := took[len(took)/2], took[min(len(took)-1, (len(took)*95+99)/100-1)]
	fmt.Fprintf(b.out, "curfew up demo --cloud local, %d fresh states: p50 %s, p95 %s, most %s\n", runs,
		p50.Round(time.Millisecond), p95.Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
	return p95, nil
}

// counter is a proxy that counts calls.
type counter struct {
	calls atomic.Int64
	to    *httputil.ReverseProxy
}

// ServeHTTP implements http.Handler.
func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.calls.Add(1)
	c.to.ServeHTTP(w, r)
}

// before starts a proxy in front of a service.
func before(service string) (*counter, *httptest.Server, error) {
	to, err := url.Parse(service)
	if err != nil {
		return nil, nil, err
	}
	c := &counter{
		to: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.Host = r.In.Host }},
	}
	return c, httptest.NewServer(c), nil
}

// cloud measures a session on AWS.
func (b *bench) cloud(ctx context.Context) (err error) {
	account, err := sandbox.Start(ctx, sandbox.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, account.Close()) }()
	image, err := account.Backbone(ctx, region, versitygw.Bucket)
	if err != nil {
		return err
	}
	if err := b.bare(ctx, account, image); err != nil {
		return err
	}
	program, err := versitygw.Binary(ctx)
	if err != nil {
		return err
	}
	dir := filepath.Join(b.dir, "aws")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(filepath.Join(b.dir, "bucket"), 0o700)); err != nil {
		return err
	}
	bucket, err := versitygw.Run(program, filepath.Join(b.dir, "bucket"))
	if err != nil {
		return err
	}
	defer bucket.Kill()
	api, server, err := before(account.URL())
	if err != nil {
		return err
	}
	defer server.Close()
	s3, store, err := before("http://" + bucket.Address())
	if err != nil {
		return err
	}
	defer store.Close()
	b.env = []string{
		"AWS_ENDPOINT_URL=" + server.URL, "AWS_ENDPOINT_URL_S3=" + store.URL, "AWS_REGION=" + region,
		"AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull,
		"AWS_EC2_METADATA_DISABLED=true", "AWS_ACCESS_KEY_ID=" + versitygw.AccessKey,
		"AWS_SECRET_ACCESS_KEY=" + versitygw.SecretKey}
	text := "identity: ana\naws: {regions: [" + region + "]}\nsessions: {image: " + image + "}\n"
	if err := os.WriteFile(filepath.Join(dir, "curfew.yaml"), []byte(text), 0o600); err != nil {
		return err
	}
	began := time.Now()
	if _, err := b.curfew(ctx, dir, "up", "demo", "--type", machineType, "--detach", "-q"); err != nil {
		return err
	}
	if err := b.until(ctx, dir, func(r view.Run) bool { return len(r.ResourceIDs) == 1 }); err != nil {
		return err
	}
	fmt.Fprintf(b.out, "curfew up demo --type %s, until it is launched: %d calls of AWS, %d of S3, %s\n", machineType,
		api.calls.Load(), s3.calls.Load(), time.Since(began).Round(10*time.Millisecond))
	api.calls.Store(0)
	s3.calls.Store(0)
	began = time.Now()
	if _, err := b.curfew(ctx, dir, "down", "demo", "--discard", "-q"); err != nil {
		return err
	}
	fmt.Fprintf(b.out, "curfew down demo --discard, until nothing is left: %d calls of AWS, %d of S3, %s\n",
		api.calls.Load(), s3.calls.Load(), time.Since(began).Round(10*time.Millisecond))
	return nil
}

// until waits for a state of a session.
func (b *bench) until(ctx context.Context, dir string, done func(view.Run) bool) error {
	for end := time.Now().Add(patient); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		out, err := b.curfew(ctx, dir, "ls", "-o", "json")
		if err != nil {
			return err
		}
		var doc view.Runs
		if err := json.Unmarshal([]byte(out), &doc); err != nil {
			return err
		}
		if len(doc.Runs) == 1 && done(doc.Runs[0]) {
			return nil
		}
	}
	return fmt.Errorf("the session is not so far after %s", patient)
}

// bare measures the calls that the AWS CLI makes to start and end one machine.
func (b *bench) bare(ctx context.Context, account *sandbox.Sandbox, image string) error {
	counted, server, err := before(account.URL())
	if err != nil {
		return err
	}
	defer server.Close()
	cfg := account.Config(region)
	cfg.BaseEndpoint = aws.String(server.URL)
	api := ec2.NewFromConfig(cfg)
	began := time.Now()
	out, err := api.RunInstances(ctx, &ec2.RunInstancesInput{
		ImageId: aws.String(image), InstanceType: types.InstanceType(machineType), MinCount: aws.Int32(1),
		MaxCount: aws.Int32(1),
	})
	if err != nil {
		return err
	}
	launched := time.Since(began)
	began = time.Now()
	if _, err := api.TerminateInstances(ctx, &ec2.TerminateInstancesInput{
		InstanceIds: []string{aws.ToString(out.Instances[0].InstanceId)},
	}); err != nil {
		return err
	}
	fmt.Fprintf(b.out, "bare RunInstances and TerminateInstances: %d calls of AWS, %s and %s\n", counted.calls.Load(),
		launched.Round(10*time.Millisecond), time.Since(began).Round(10*time.Millisecond))
	return nil
}
