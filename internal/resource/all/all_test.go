package all_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
)

var rewrite = flag.Bool("rewrite", false, "write the golden tables anew")

// TestNames compares what discovery says of each resource with the golden
// table: group, version, resource, kind, scope, short names, categories,
// verbs, subresources.
func TestNames(t *testing.T) {
	var lines []string
	for _, r := range all.All() {
		scope := "Cluster"
		if r.Namespaced {
			scope = "Namespaced"
		}
		var subresources []string
		for _, s := range r.Subresources {
			subresources = append(subresources, s.Name)
		}
		slices.Sort(subresources)
		for _, v := range r.Versions {
			lines = append(lines, strings.Join([]string{
				v.Group, v.Version, r.Plural, r.Kind, scope, strings.Join(r.ShortNames, ","), strings.Join(r.Categories, ","),
				strings.Join(r.Verbs, ","), strings.Join(subresources, ","),
			}, "\t"))
		}
	}
	compareGolden(t, "api-resources.tsv", "group\tversion\tresource\tkind\tscope\tshortNames\tcategories\tverbs\tsubresources", lines)
}

// TestColumns compares the columns of each table with the golden ones.
func TestColumns(t *testing.T) {
	var lines []string
	for _, r := range all.All() {
		if !slices.Contains(r.Verbs, "list") {
			continue
		}
		for _, v := range r.Versions {
			for _, c := range r.Columns {
				lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%d", v.Group, v.Version, r.Plural, c.Name, c.Type, c.Format, c.Priority))
			}
		}
	}
	compareGolden(t, "table-columns.tsv", "group\tversion\tresource\tcolumn\ttype\tformat\tpriority", lines)
}

// TestRows renders an empty object of each kind: as many cells as columns.
func TestRows(t *testing.T) {
	for _, r := range all.All() {
		if r.Virtual() {
			continue
		}
		if cells := r.Row(r.Hub().New(), (&resource.Request{}).Now); len(cells) != len(r.Columns) {
			t.Errorf("%s: %d cells for %d columns", r.Plural, len(cells), len(r.Columns))
		}
	}
}

// TestConversions takes an empty defaulted object of each version through the
// hub and back.
func TestConversions(t *testing.T) {
	for _, r := range all.All() {
		for _, v := range r.Versions {
			want := v.New()
			v.Default(want)
			hub := v.ToHub(want.DeepCopyObject().(resource.Object))
			got := v.FromHub(hub)
			again := v.ToHub(got)
			if diff := cmp.Diff(hub, again); diff != "" {
				t.Errorf("%s %s through the hub twice (-once +twice):\n%s", v.GroupVersion, r.Kind, diff)
			}
		}
	}
}

func compareGolden(t *testing.T, file, header string, lines []string) {
	t.Helper()
	got := header + "\n" + strings.Join(lines, "\n") + "\n"
	if *rewrite {
		if err := os.WriteFile("testdata/"+file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	golden, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sorted(string(golden)), sorted(got)); diff != "" {
		t.Errorf("%s differs; run with -rewrite if that is meant (-golden +ours):\n%s", file, diff)
	}
}

// sorted makes the comparison one of sets: the order of versions and groups
// is told by discovery's own tests.
func sorted(table string) []string {
	lines := strings.Split(strings.TrimSpace(table), "\n")
	slices.SortStableFunc(lines[1:], func(a, b string) int {
		return strings.Compare(resourceOf(a), resourceOf(b))
	})
	return lines
}

func resourceOf(line string) string {
	return strings.Join(strings.SplitN(line, "\t", 4)[:3], "\t")
}
