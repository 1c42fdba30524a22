package crd

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/jsonpath"

	"github.com/coracle-io/coracle/internal/resource"
)

// ageColumn returns the column of a version that defines none.
func ageColumn() apiextensionsv1.CustomResourceColumnDefinition {
	return apiextensionsv1.CustomResourceColumnDefinition{
		Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp",
		Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
	}
}

// defineTable sets the printer columns of the resource. As upstream, it stops
// at the first path that cannot be parsed.
func (v *version) defineTable(r *resource.Resource) {
	declared := v.spec.AdditionalPrinterColumns
	if len(declared) == 0 {
		declared = []apiextensionsv1.CustomResourceColumnDefinition{ageColumn()}
	}
	r.Table.Columns = []metav1.TableColumnDefinition{resource.NameColumn()}
	var shown []apiextensionsv1.CustomResourceColumnDefinition
	for _, column := range declared {
		if _, err := parsePath(column.Name, column.JSONPath); err != nil {
			break
		}
		shown = append(shown, column)
		r.Table.Columns = append(r.Table.Columns, metav1.TableColumnDefinition{
			Name: column.Name, Type: column.Type, Format: column.Format, Priority: column.Priority,
			Description: cmp.Or(column.Description, "Custom resource definition column (in JSONPath format): "+column.JSONPath),
		})
	}
	r.Table.Row = func(obj resource.Object, now time.Time) []any {
		content := v.in(obj).Object
		cells := make([]any, 1, 1+len(shown))
		cells[0] = obj.GetName()
		for _, column := range shown {
			cells = append(cells, cellOf(column, content, now))
		}
		return cells
	}
}

// parsePath parses a simple JSON path such as .spec.replicas. The result is not
// safe for concurrent use.
func parsePath(name, path string) (*jsonpath.JSONPath, error) {
	p := jsonpath.New(name)
	p.AllowMissingKeys(true)
	return p, p.Parse("{" + path + "}")
}

// cellOf renders the value of a column; nil if it is missing or of another
// type.
func cellOf(column apiextensionsv1.CustomResourceColumnDefinition, content map[string]any, now time.Time) any {
	path, err := parsePath(column.Name, column.JSONPath)
	if err != nil {
		return nil
	}
	results, err := path.FindResults(content)
	if err != nil || len(results) == 0 || len(results[0]) == 0 {
		return nil
	}
	value := results[0][0].Interface()
	if column.Type != "string" {
		return cell(column.Type, value, now)
	}
	var text bytes.Buffer
	if err := path.PrintResults(&text, []reflect.Value{reflect.ValueOf(value)}); err != nil {
		return nil
	}
	return text.String()
}

func cell(kind string, value any, now time.Time) any {
	switch typed := value.(type) {
	case int64:
		switch kind {
		case "integer":
			return typed
		case "number":
			return float64(typed)
		}
	case float64:
		switch kind {
		case "integer":
			return int64(typed)
		case "number":
			return typed
		}
	case bool:
		if kind == "boolean" {
			return typed
		}
	case string:
		if kind == "date" {
			var at metav1.Time
			if err := at.UnmarshalQueryParameter(typed); err != nil {
				return "<invalid>"
			}
			return resource.Age(at, now)
		}
	}
	return nil
}

// fieldLabels returns the labels of the version's field selectors besides those
// of metadata.
func (v *version) fieldLabels() map[string]string {
	labels := make(map[string]string, len(v.spec.SelectableFields))
	for _, f := range v.spec.SelectableFields {
		label := strings.TrimPrefix(f.JSONPath, ".")
		labels[label] = label
	}
	return labels
}

// defineSelection sets the selectable fields of the resource. The watch cache has an
// index of them, unless a webhook may give a field of the same name other values in
// another version. Objects that were stored in such a version before are in the cache,
// which must not wait for a webhook when it decodes them.
func (v *version) defineSelection(r *resource.Resource) {
	declared := v.spec.SelectableFields
	for _, f := range declared {
		r.FieldSelectors.Fields = append(r.FieldSelectors.Fields, strings.TrimPrefix(f.JSONPath, "."))
	}
	if len(declared) == 0 {
		r.FieldSelectors.SelectableFields = func(resource.Object) fields.Set { return nil }
		return
	}
	if !v.of.convertsByWebhook() {
		r.FieldSelectors.Indexed = r.FieldSelectors.Fields
	}
	paths := sync.Pool{New: func() any {
		parsed := make([]*jsonpath.JSONPath, len(declared))
		for i, f := range declared {
			parsed[i], _ = parsePath("selectableField", f.JSONPath)
		}
		return &parsed
	}}
	r.FieldSelectors.SelectableFields = func(obj resource.Object) fields.Set {
		pooled := paths.Get().(*[]*jsonpath.JSONPath)
		defer paths.Put(pooled)
		parsed := *pooled
		content := v.in(obj).Object
		set := make(fields.Set, len(parsed))
		for i, label := range r.FieldSelectors.Fields {
			set[label] = ""
			results, err := parsed[i].FindResults(content)
			if err == nil && len(results) > 0 && len(results[0]) > 0 {
				if value := results[0][0].Interface(); value != nil {
					set[label] = fmt.Sprint(value)
				}
			}
		}
		return set
	}
}
