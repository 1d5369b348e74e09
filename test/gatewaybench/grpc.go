package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// The text of a message as ghz prints it. A float has the fewest digits that tell it from all others.
var (
	idText    = regexp.MustCompile(`\bid:"(\d+)"`)
	valueText = regexp.MustCompile(`\bfp32_contents:([^\s>]+)`)
)

// equalGRPC asks for rows by gRPC with ghz, and compares the answers with direct ones bit for bit.
func (b *bench) equalGRPC(ours string, rows [][]byte, want []string) error {
	ghz := filepath.Join(b.dir, "ghzanswers")
	build := exec.Command("go", "build", "-o", ghz, ".")
	build.Dir = filepath.Join("test", "gatewaybench", "ghz")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build ghz: %w: %s", err, out)
	}
	data := filepath.Join(b.dir, "rows.json")
	if err := writeMessages(data, rows); err != nil {
		return err
	}
	batchesBefore, rowsBefore, err := batched(ours)
	if err != nil {
		return err
	}
	text, err := output(ghz, "internal/gateway/inference/grpc_predict_v2.proto", data,
		strings.TrimPrefix(ours, "http://"), strconv.Itoa(len(rows)), "64")
	if err != nil {
		return fmt.Errorf("run ghz: %w", err)
	}
	got := readAnswers(string(text))
	differ := 0
	for i := range rows {
		equal, err := sameBits(want[i], got[i])
		if err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
		if !equal {
			differ++
		}
	}
	batches, inBatches, err := batched(ours)
	if err != nil {
		return err
	}
	batches, inBatches = batches-batchesBefore, inBatches-rowsBefore
	fmt.Printf("%d random rows by ghz, %d of them through %d batches: %d differ from direct answers\n", len(rows),
		inBatches, batches, differ)
	b.goal(differ == 0 && batches < inBatches, "bit for bit equal by gRPC")
	return nil
}

// writeMessages writes one message of gRPC in JSON for each row; its id is the number of the row.
func writeMessages(path string, rows [][]byte) error {
	all := make([]json.RawMessage, len(rows))
	for i, row := range rows {
		numbers := strings.TrimSuffix(strings.TrimPrefix(string(row), `{"instances":[[`), `]]}`)
		all[i] = fmt.Appendf(nil, `{"model_name":"mlp","id":"%d","inputs":[{"name":"x","datatype":"FP32",`+
			`"shape":["1","16"],"contents":{"fp32_contents":[%s]}}]}`, i, numbers)
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// readAnswers returns the values of each answer by its id.
func readAnswers(text string) map[int][]string {
	out := map[int][]string{}
	for line := range strings.Lines(text) {
		id := idText.FindStringSubmatch(line)
		if id == nil {
			continue
		}
		i, _ := strconv.Atoi(id[1])
		out[i] = nil
		for _, v := range valueText.FindAllStringSubmatch(line, -1) {
			out[i] = append(out[i], v[1])
		}
	}
	return out
}

// sameBits compares the predictions of a row in JSON with numbers of 32 bits in text.
func sameBits(predictions string, got []string) (bool, error) {
	var want [][]float64
	if err := json.Unmarshal([]byte(predictions), &want); err != nil || len(want) != 1 {
		return false, fmt.Errorf("the direct answer %.80q is no row: %w", predictions, err)
	}
	if len(got) != len(want[0]) {
		return false, nil
	}
	for i, text := range got {
		v, err := strconv.ParseFloat(text, 32)
		if err != nil {
			return false, err
		}
		if float32(v) != float32(want[0][i]) {
			return false, nil
		}
	}
	return true, nil
}

// batched returns the batches that the gateway has sent, and their rows.
func batched(ours string) (batches, rows int, err error) {
	resp, err := http.Get(ours + "/curfew/stats")
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	var doc struct {
		Models []struct {
			Batches int `json:"batches"`
			Rows    int `json:"batched_rows"`
		} `json:"models"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil {
		return 0, 0, err
	}
	for _, m := range doc.Models {
		batches, rows = batches+m.Batches, rows+m.Rows
	}
	return batches, rows, nil
}
