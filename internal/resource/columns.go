package resource

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// NameColumn is the first column of every table.
func NameColumn() metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{
		Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"],
	}
}

// AgeColumn is the column that Age fills.
func AgeColumn() metav1.TableColumnDefinition {
	return Column("Age", "string", metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"])
}

// CreatedAtColumn is the column that shows the creation as a date.
func CreatedAtColumn() metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{
		Name: "Created At", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
	}
}

// Column is a column that every table shows; kind is "string", "integer",
// "boolean", "number" or "date".
func Column(name, kind, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: kind, Description: description}
}

// WideColumn is a column that only `-o wide` shows.
func WideColumn(name, kind, description string) metav1.TableColumnDefinition {
	column := Column(name, kind, description)
	column.Priority = 1
	return column
}

// Age renders the time since t as kubectl does ("5d", "2m30s"), or "<unknown>"
// for no time.
func Age(t metav1.Time, now time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(t.Time))
}
