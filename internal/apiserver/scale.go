package apiserver

import (
	"net/http"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coracle-io/coracle/internal/apiserver/registry"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// scaleColumns are what `kubectl get --subresource=scale` shows.
func scaleColumns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		resource.NameColumn(),
		resource.Column("Desired", "integer", autoscalingv1.ScaleSpec{}.SwaggerDoc()["replicas"]),
		resource.Column("Available", "integer", autoscalingv1.ScaleStatus{}.SwaggerDoc()["replicas"]),
		resource.AgeColumn(),
	}
}

// scale answers with an object's Scale.
func (o output) scale(e *watchcache.Entry) error {
	answer, err := o.scaleAs(registry.ScaleOf(o.Subresource, e.Object))
	if err != nil {
		return err
	}
	return o.object(http.StatusOK, answer)
}

// scaleAs turns a Scale into what the client asked for: itself, its metadata
// or a table of one row.
func (o output) scaleAs(scale *autoscalingv1.Scale) (runtime.Object, error) {
	version := o.Convert.GroupVersion()
	metadata := func() *metav1.PartialObjectMetadata {
		m := meta.AsPartialObjectMetadata(scale)
		m.SetGroupVersionKind(version.WithKind("PartialObjectMetadata"))
		return m
	}
	switch o.Convert.Kind {
	case "PartialObjectMetadata":
		return metadata(), nil
	case "Table":
		options, err := o.tableOptions()
		if err != nil {
			return nil, err
		}
		row := metav1.TableRow{Cells: []any{
			scale.Name, scale.Spec.Replicas, scale.Status.Replicas, resource.Age(scale.CreationTimestamp, o.Now),
		}}
		switch options.IncludeObject {
		case metav1.IncludeNone:
		case metav1.IncludeObject:
			row.Object.Object = scale
		default:
			row.Object.Object = metadata()
		}
		table := &metav1.Table{
			ListMeta:          metav1.ListMeta{ResourceVersion: scale.ResourceVersion},
			ColumnDefinitions: scaleColumns(),
			Rows:              []metav1.TableRow{row},
		}
		table.SetGroupVersionKind(version.WithKind("Table"))
		return table, nil
	}
	return scale, nil
}
