package codec

import (
	"bytes"
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// TableOptions are a client's options for a Table.
type TableOptions struct {
	Version       schema.GroupVersion // of meta.k8s.io
	IncludeObject metav1.IncludeObjectPolicy
	NoHeaders     bool
	Now           time.Time
	List          bool // of objects; not one object, or an event of a watch
}

// row returns the function that makes the cells of entries.
func (v *Version) row(entries []*watchcache.Entry, o TableOptions) func(resource.Object, time.Time) []any {
	table := v.Resource.Table
	if !o.List || table.ListRow == nil {
		return table.Row
	}
	return table.ListRow(func(yield func(resource.Object) bool) {
		for _, e := range entries {
			if !yield(e.Object) {
				return
			}
		}
	})
}

func tableColumns(columns []metav1.TableColumnDefinition) []byte {
	if columns == nil {
		columns = []metav1.TableColumnDefinition{}
	}
	data, err := json.Marshal(columns)
	if err != nil {
		return []byte("[]")
	}
	return data
}

// Table encodes entries as a Table: in CBOR or, for the other media types, in
// JSON with a final newline.
func (v *Version) Table(entries []*watchcache.Entry, meta metav1.ListMeta, media Media, o TableOptions) ([]byte, error) {
	if err := watchcache.Convert(v.Version, entries); err != nil {
		return nil, err
	}
	if media == CBOR {
		return v.cborTable(entries, meta, o)
	}
	var b bytes.Buffer
	b.Write(typeMetaJSON(o.Version.WithKind("Table")))
	b.WriteString(`"metadata":`)
	metadata, err := json.Marshal(meta)
	if err != nil {
		return nil, err
	}
	b.Write(metadata)
	b.WriteString(`,"columnDefinitions":`)
	if o.NoHeaders {
		b.WriteString("null")
	} else {
		b.Write(v.table)
	}
	b.WriteString(`,"rows":[`)
	cells, row := json.NewEncoder(&b), v.row(entries, o)
	for i, e := range entries {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`{"cells":`)
		shown, err := e.Shown(v.Version)
		if err != nil {
			return nil, err
		}
		if err := cells.Encode(row(shown, o.Now)); err != nil {
			return nil, err
		}
		b.Truncate(b.Len() - 1)
		if conditions := v.rowConditions(e); len(conditions) > 0 {
			b.WriteString(`,"conditions":`)
			if err := cells.Encode(conditions); err != nil {
				return nil, err
			}
			b.Truncate(b.Len() - 1)
		}
		object, err := v.rowObject(e, shown, o)
		if err != nil {
			return nil, err
		}
		b.WriteString(`,"object":`)
		b.Write(trimNewline(object))
		b.WriteByte('}')
	}
	b.WriteString("]}\n")
	return b.Bytes(), nil
}

func (v *Version) rowConditions(e *watchcache.Entry) []metav1.TableRowCondition {
	if v.Resource.Table.Conditions == nil {
		return nil
	}
	return v.Resource.Table.Conditions(e.Object)
}

// rowObject returns what a row has of an entry, whose object is shown.
func (v *Version) rowObject(e *watchcache.Entry, shown resource.Object, o TableOptions) ([]byte, error) {
	switch o.IncludeObject {
	case metav1.IncludeNone:
		return []byte("null"), nil
	case metav1.IncludeObject:
		return v.JSON(e)
	}
	if v.Version.ConvertAll != nil && shown != e.Object { // the webhook may give it other labels and annotations
		return marshalJSON(PartialMetadata(shown, o.Version))
	}
	return v.metadataIn(e, o.Version)
}
