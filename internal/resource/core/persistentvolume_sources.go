package core

import (
	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validatePersistentVolumeSource checks that a volume is one thing, and that
// the thing is described.
func validatePersistentVolumeSource(v *corev1.PersistentVolume, path *field.Path) field.ErrorList {
	s := &v.Spec.PersistentVolumeSource
	// Most sources are the same as those of pods.
	shared := storageVolumeKinds(&corev1.VolumeSource{
		GCEPersistentDisk: s.GCEPersistentDisk, AWSElasticBlockStore: s.AWSElasticBlockStore, NFS: s.NFS,
		FC: s.FC, Flocker: s.Flocker, VsphereVolume: s.VsphereVolume, Quobyte: s.Quobyte, AzureDisk: s.AzureDisk,
		PhotonPersistentDisk: s.PhotonPersistentDisk, PortworxVolume: s.PortworxVolume,
	})
	own := []volumeKind{
		{"hostPath", s.HostPath != nil, func(at *field.Path) field.ErrorList { return validateHostPath(s.HostPath, at) }},
		{"glusterfs", s.Glusterfs != nil, func(at *field.Path) field.ErrorList {
			errs := append(required(s.Glusterfs.EndpointsName, at.Child("endpoints")), required(s.Glusterfs.Path, at.Child("path"))...)
			return append(errs, validateEndpointsNamespace(s.Glusterfs.EndpointsNamespace, at.Child("endpointsNamespace"))...)
		}},
		{"rbd", s.RBD != nil, func(at *field.Path) field.ErrorList { return validateRBD(s.RBD.CephMonitors, s.RBD.RBDImage, at) }},
		{"cephfs", s.CephFS != nil, func(at *field.Path) field.ErrorList { return requiredList(s.CephFS.Monitors, at.Child("monitors")) }},
		{"iscsi", s.ISCSI != nil, func(at *field.Path) field.ErrorList {
			errs := validateISCSI(s.ISCSI.TargetPortal, s.ISCSI.IQN, s.ISCSI.Lun, s.ISCSI.InitiatorName, "", at)
			if name := v.Name + ":" + s.ISCSI.TargetPortal; s.ISCSI.InitiatorName != nil && len(name) > 64 {
				errs = append(errs, field.Invalid(at.Child("targetportal"), s.ISCSI.TargetPortal,
					"Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."))
			}
			if (s.ISCSI.DiscoveryCHAPAuth || s.ISCSI.SessionCHAPAuth) && s.ISCSI.SecretRef == nil {
				errs = append(errs, field.Required(at.Child("secretRef"), ""))
			}
			return append(errs, validateSecretReference(s.ISCSI.SecretRef, false, at.Child("secretRef"))...)
		}},
		{"cinder", s.Cinder != nil, func(at *field.Path) field.ErrorList {
			errs := required(s.Cinder.VolumeID, at.Child("volumeID"))
			return append(errs, validateSecretReference(s.Cinder.SecretRef, true, at.Child("secretRef"))...)
		}},
		{"flexVolume", s.FlexVolume != nil, func(at *field.Path) field.ErrorList {
			return validateFlex(s.FlexVolume.Driver, s.FlexVolume.Options, at)
		}},
		{"azureFile", s.AzureFile != nil, func(at *field.Path) field.ErrorList {
			errs := append(required(s.AzureFile.SecretName, at.Child("secretName")), required(s.AzureFile.ShareName, at.Child("shareName"))...)
			if s.AzureFile.SecretNamespace != nil && *s.AzureFile.SecretNamespace == "" {
				errs = append(errs, field.Required(at.Child("secretNamespace"), ""))
			}
			return errs
		}},
		{"scaleIO", s.ScaleIO != nil, func(at *field.Path) field.ErrorList {
			errs := required(s.ScaleIO.Gateway, at.Child("gateway"))
			errs = append(errs, required(s.ScaleIO.System, at.Child("system"))...)
			return append(errs, required(s.ScaleIO.VolumeName, at.Child("volumeName"))...)
		}},
		{"local", s.Local != nil, func(at *field.Path) field.ErrorList {
			errs := validateLocalVolume(s.Local, at)
			if v.Spec.NodeAffinity == nil {
				errs = append(errs, field.Required(path.Child("nodeAffinity"), "Local volume requires node affinity"))
			}
			return errs
		}},
		{"storageos", s.StorageOS != nil, func(at *field.Path) field.ErrorList {
			errs := validateStorageOS(s.StorageOS.VolumeName, s.StorageOS.VolumeNamespace, at)
			if ref := s.StorageOS.SecretRef; ref != nil {
				errs = append(errs, required(ref.Name, at.Child("secretRef", "name"))...)
				errs = append(errs, required(ref.Namespace, at.Child("secretRef", "namespace"))...)
			}
			return errs
		}},
		{"csi", s.CSI != nil, func(at *field.Path) field.ErrorList { return validateCSIVolume(s.CSI, at) }},
	}
	for i := range shared {
		if shared[i].name == "gcePersistentDisk" {
			shared[i].name = "persistentDisk"
		}
	}
	var errs field.ErrorList
	found := 0
	for _, kind := range append(own, shared...) {
		if !kind.set {
			continue
		}
		if found++; found > 1 {
			errs = append(errs, kind.oneTooMany(path))
			continue
		}
		errs = append(errs, kind.validate(path.Child(kind.name))...)
	}
	if found == 0 {
		errs = append(errs, field.Required(path, "must specify a volume type"))
	}
	return errs
}

func validateLocalVolume(l *corev1.LocalVolumeSource, path *field.Path) field.ErrorList {
	if l.Path == "" {
		return field.ErrorList{field.Required(path.Child("path"), "")}
	}
	return validateNoBacksteps(l.Path, path.Child("path"))
}

func validateCSIVolume(c *corev1.CSIPersistentVolumeSource, path *field.Path) field.ErrorList {
	errs := validateCSIDriverName(c.Driver, path.Child("driver"))
	errs = append(errs, required(c.VolumeHandle, path.Child("volumeHandle"))...)
	for _, ref := range []struct {
		name   string
		secret *corev1.SecretReference
	}{
		{"controllerPublishSecretRef", c.ControllerPublishSecretRef},
		{"controllerExpandSecretRef", c.ControllerExpandSecretRef},
		{"nodePublishSecretRef", c.NodePublishSecretRef},
		{"nodeExpandSecretRef", c.NodeExpandSecretRef},
	} {
		if ref.secret == nil {
			continue
		}
		at := path.Child(ref.name)
		errs = append(errs, validateSecretReference(ref.secret, true, at)...)
		if name := ref.secret.Name; name != "" {
			errs = append(errs, invalid(at.Child("name"), name, utilvalidation.IsDNS1123Subdomain(name))...)
		}
		if namespace := ref.secret.Namespace; namespace != "" {
			errs = append(errs, invalid(at.Child("namespace"), namespace, utilvalidation.IsDNS1123Label(namespace))...)
		}
	}
	return errs
}

func validateEndpointsNamespace(namespace *string, path *field.Path) field.ErrorList {
	if namespace == nil {
		return nil
	}
	if *namespace == "" {
		return field.ErrorList{field.Invalid(path, *namespace, "if the endpointnamespace is set, it must be a valid namespace name")}
	}
	return invalid(path, *namespace, utilvalidation.IsDNS1123Label(*namespace))
}

func validateSecretReference(ref *corev1.SecretReference, namespaced bool, path *field.Path) field.ErrorList {
	if ref == nil {
		return nil
	}
	errs := required(ref.Name, path.Child("name"))
	if namespaced {
		errs = append(errs, required(ref.Namespace, path.Child("namespace"))...)
	}
	return errs
}
