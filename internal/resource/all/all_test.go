package all_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/coracle-io/coracle/internal/goldentest"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
)

// The golden tables began as what upstream serves. `make generate` rewrites them;
// review the difference.
var rewrite = flag.Bool("rewrite", false, "rewrite the golden tables in testdata")

// TestNames compares what discovery returns for each resource with
// testdata/api-resources.tsv: group, version, resource, kind, scope, short
// names, categories, verbs, subresources.
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
	compareTable(t, "api-resources.tsv", "group\tversion\tresource\tkind\tscope\tshortNames\tcategories\tverbs\tsubresources", lines)
}

// TestGroups compares the groups, in the order in which clients prefer them, with
// testdata/api-groups.tsv: group, priority.
func TestGroups(t *testing.T) {
	priorities := map[string]int32{}
	for gv, p := range resource.Served(all.All()) {
		priorities[gv.Group] = p.Group
	}
	delete(priorities, "") // at /api, before all others
	order := slices.SortedFunc(maps.Keys(priorities), func(a, b string) int {
		return cmp.Or(cmp.Compare(priorities[b], priorities[a]), strings.Compare(a, b))
	})
	got := "group\tpriority\n\t\n"
	for _, group := range order {
		got += fmt.Sprintf("%s\t%d\n", group, priorities[group])
	}
	goldentest.Compare(t, "testdata/api-groups.tsv", got, *rewrite, howToRewrite)
}

// TestColumns compares the columns of each table with
// testdata/table-columns.tsv.
func TestColumns(t *testing.T) {
	var lines []string
	for _, r := range all.All() {
		if !slices.Contains(r.Verbs, "list") {
			continue
		}
		for _, v := range r.Versions {
			for _, c := range r.Table.Columns {
				lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%d", v.Group, v.Version, r.Plural, c.Name, c.Type, c.Format, c.Priority))
			}
		}
	}
	compareTable(t, "table-columns.tsv", "group\tversion\tresource\tcolumn\ttype\tformat\tpriority", lines)
}

// TestRows checks that the row of an empty object of each kind has as many
// cells as columns.
func TestRows(t *testing.T) {
	for _, r := range all.All() {
		if r.Virtual() {
			continue
		}
		if cells := r.Table.Row(r.Hub().New(), (&resource.RequestContext{}).Now); len(cells) != len(r.Table.Columns) {
			t.Errorf("%s: %d cells for %d columns", r.Plural, len(cells), len(r.Table.Columns))
		}
	}
}

// TestConversions converts an empty defaulted object of each version to the
// hub and back.
func TestConversions(t *testing.T) {
	for _, r := range all.All() {
		for _, v := range r.Versions {
			want := v.New()
			v.Default(want)
			hub := v.ToHub(want.DeepCopyObject().(resource.Object))
			got := v.FromHub(hub)
			again := v.ToHub(got)
			if diff := gocmp.Diff(hub, again); diff != "" {
				t.Errorf("%s %s through the hub twice (-once +twice):\n%s", v.GroupVersion, r.Kind, diff)
			}
		}
	}
}

const howToRewrite = "go test ./internal/resource/all -run 'TestNames|TestGroups|TestColumns' -args -rewrite"

// compareTable compares a table with a file. Its lines are sorted by group,
// version and resource: tests of discovery check their order.
func compareTable(t *testing.T, file, header string, lines []string) {
	t.Helper()
	slices.SortStableFunc(lines, func(a, b string) int { return strings.Compare(resourceOf(a), resourceOf(b)) })
	goldentest.Compare(t, "testdata/"+file, header+"\n"+strings.Join(lines, "\n")+"\n", *rewrite, howToRewrite)
}

func resourceOf(line string) string {
	return strings.Join(strings.SplitN(line, "\t", 4)[:3], "\t")
}
