#!/bin/sh
# Makes the files here, which the tests take: certificates of localhost for a hundred years.
set -eu
san='subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1'
new() {
    openssl req -x509 -newkey "$1" $2 -nodes -days 36500 -subj "/CN=$3" -keyout "$3.key" \
        -out "$3.pem" -addext "$san" -addext 'basicConstraints=critical,CA:FALSE'
}
new ec '-pkeyopt ec_paramgen_curve:P-256' server
new rsa:2048 '' rsa
openssl genpkey -algorithm ed25519 -out other.key
