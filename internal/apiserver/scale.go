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

// scaleColumns are the columns of `kubectl get --subresource=scale`.
func scaleColumns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		resource.NameColumn(),
		resource.Column("Desired", "integer", autoscalingv1.ScaleSpec{}.SwaggerDoc()["replicas"]),
		resource.Column("Available", "integer", autoscalingv1.ScaleStatus{}.SwaggerDoc()["replicas"]),
		resource.AgeColumn(),
	}
}

// updateScale replaces the Scale of an object.
func (o operation) updateScale() error {
	body, options, out, err := o.readUpdate()
	if err != nil {
		return err
	}
	scale := &autoscalingv1.Scale{}
	if err := o.in.decode(scale, o.call.Subresource.Kind, body, options.FieldValidation); err != nil {
		return err
	}
	e, err := o.call.UpdateScale(scale, options)
	if err != nil {
		return err
	}
	return out.scale(e)
}

// patchScale changes the Scale of an object by a patch of any type.
func (o operation) patchScale() error {
	p, out, err := o.readPatch()
	if err != nil {
		return err
	}
	e, err := o.call.PatchScale(p)
	if err != nil {
		return err
	}
	return out.scale(e)
}

// scale answers with an object's Scale.
func (o output) scale(e *watchcache.Entry) error {
	obj, err := e.Shown(o.q.call.Endpoint.Version)
	if err != nil {
		return err
	}
	answer, err := o.scaleAs(registry.ScaleOf(o.q.call.Subresource, obj))
	if err != nil {
		return err
	}
	return o.object(http.StatusOK, answer)
}

// scaleAs converts a Scale to the negotiated form: a Scale, its metadata or a
// Table with one row.
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
			scale.Name, scale.Spec.Replicas, scale.Status.Replicas, resource.Age(scale.CreationTimestamp, o.q.call.Now),
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
