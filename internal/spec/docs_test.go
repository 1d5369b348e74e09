package spec

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestDocumentsSupportedKinds checks that docs/budgets.md lists the kinds in the table.
func TestDocumentsSupportedKinds(t *testing.T) {
	groups := map[string][]string{}
	for k := range kinds() {
		groups[k.group] = append(groups[k.group], k.name)
	}
	for k := range autoscalers {
		groups[k.group] = append(groups[k.group], k.name)
	}
	delete(groups, "extensions") // the old API group of the kinds in apps
	var rows []string
	for group, names := range groups {
		slices.Sort(names)
		if group == "" {
			group = "v1"
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s |", group, strings.Join(names, ", ")))
	}
	slices.Sort(rows)
	src, err := os.ReadFile("../../docs/budgets.md")
	if err != nil {
		t.Fatal(err)
	}
	if table := "| group | kinds that are read |\n|---|---|\n" + strings.Join(rows, "\n") + "\n\n"; !strings.Contains(
		string(src), table) {
		t.Errorf("docs/budgets.md lacks the table\n%s", table)
	}
}
