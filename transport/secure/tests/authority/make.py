#!/usr/bin/env python3
"""Makes the keys and certificates of tests/authority.rs anew (needs the package `cryptography`)."""

import datetime
import pathlib

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

HERE = pathlib.Path(__file__).parent
BEGIN = datetime.datetime(2026, 6, 1)
END = datetime.datetime(2027, 1, 30, 23, 59, 59)
BOTH = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]


def name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def write(file, text):
    (HERE / file).write_bytes(text)


def certificate(subject, key, issuer, issuer_key, usages, dns, end=END):
    builder = (
        x509.CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(BEGIN)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=not usages, path_length=None), critical=True)
    )
    if usages:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    if dns:
        names = [x509.DNSName(dns), x509.DNSName("alias-" + dns)]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    signed = builder.sign(issuer_key, None)
    return signed.public_bytes(serialization.Encoding.PEM)


def main():
    encoding = serialization.Encoding.PEM
    pkcs8 = serialization.PrivateFormat.PKCS8
    plain = serialization.NoEncryption()
    authorities = {}
    for label in ["ca", "other-ca"]:
        key = Ed25519PrivateKey.generate()
        authorities[label] = key
        far = datetime.datetime(2060, 1, 1)
        write(f"{label}.pem", certificate(label, key, label, key, [], None, far))
    hosts = [
        ("a", "ca", BOTH, "a.rack4"),
        ("b", "ca", BOTH, "b.rack4"),
        ("client", "ca", BOTH[:1], "client.rack4"),
        ("nameless", "ca", BOTH, None),
        ("stranger", "other-ca", BOTH, "b.rack4"),
    ]
    for label, issuer, usages, dns in hosts:
        key = Ed25519PrivateKey.generate()
        write(f"{label}.key", key.private_bytes(encoding, pkcs8, plain))
        signed = certificate(label, key, issuer, authorities[issuer], usages, dns)
        write(f"{label}.pem", signed)


main()
